"""The holder of a lease: its stored record, and the errors that name it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import socket
import time
from typing import Any, TypeVar

from stagecraft.common.errors import UserError

Fields = TypeVar("Fields", "Holder", "Record")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """The training that holds a lease."""

    name: str = ""
    """Name of its cluster job, equal for all attempts of one pipeline step; empty without a job."""
    host: str = ""
    process: int = 0
    since: float = 0.0
    """Seconds since 1970."""

    def __str__(self) -> str:
        """A phrase for messages."""
        process = f"process {self.process} on {self.host}" if self.process else ""
        if self.name and process:
            return f"{self.name} ({process})"
        return self.name or process or "another process"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """The stored content of a lease."""

    holder: Holder
    until: float
    """Seconds since 1970 from which others may take the lease."""
    token: str = ""
    """Identifies one claim."""
    machine: str = ""
    """The holder's :func:`machine`."""

    @property
    def is_over(self) -> bool:
        """Whether others may take the lease."""
        return time.time() >= self.until

    def json(self) -> bytes:
        """Serializes the record as a line of JSON."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def parsed(cls, content: bytes | str) -> Record:
        """Parses the output of :meth:`json`; raises a ValueError if it is no record."""
        try:
            fields = json.loads(content)
            holder = fields["holder"]
            holder = Holder(name=holder) if isinstance(holder, str) else _known(Holder, holder)
            return _known(cls, {**fields, "holder": holder, "until": float(fields["until"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no lease: {content[:80]!r}") from error


def _known(kind: type[Fields], values: dict[str, Any]) -> Fields:
    """Drops fields that a later version may have added."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})


class LeaseHeldError(UserError):
    """Another training holds the lease."""

    def __init__(self, place: str, record: Record):
        """``record``: who holds it; without an end if it is known to be alive."""
        self.place, self.lease = place, record
        holder, until = self.holder, self.until = record.holder, record.until
        uses = "uses these checkpoints"
        if holder.since:
            uses = f"has used these checkpoints since {clock_time(holder.since)}"
        killed = f". If it was killed, its lease expires at {clock_time(until)}"
        super().__init__(
            f"{place}: {holder} {uses}; only one training run can use them. Wait until it ends, "
            f"stop it, or set another train.resume_id{killed if until else ''}",
            file=place,
            suggestion="train.resume_id",
        )


class LeaseLostError(UserError):
    """This training has lost the lease, and writes no more checkpoints."""

    def __init__(self, place: str, reason: str, holder: Holder | None = None):
        self.place, self.holder = place, holder
        super().__init__(
            f"{place}: this training run has lost its lease, and saves no more checkpoints. When "
            "no other training run uses these checkpoints, start this one again. It resumes from "
            f"the newest checkpoint. Cause: {reason}",
            file=place,
        )


def machine() -> str:
    """Identifies this host, since its boot, and its process numbers: a container has its own."""
    identity = [socket.gethostname()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as file:
            identity.append(file.read().strip())
        identity.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(identity)


def clock_time(seconds: float) -> str:
    """Formats seconds since 1970 for people."""
    return f"{datetime.datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S %Z}"
