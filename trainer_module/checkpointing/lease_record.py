"""Who has a lease, as it is written, and as the others are told."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import socket
import time
from typing import Any, TypeVar

from stagecraft.schemas.errors import UserError

Fields = TypeVar("Fields", "Holder", "Record")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """Who has a lease."""

    name: str = ""
    """Of a training's job; all attempts of one step have the same. Empty: a process by itself."""

    host: str = ""
    process: int = 0
    since: float = 0.0
    """Seconds since 1970."""

    def __str__(self) -> str:
        """For people."""
        process = f"process {self.process} on {self.host}" if self.process else ""
        return ", ".join(filter(None, (self.name, process))) or "another process"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """What is written."""

    holder: Holder
    until: float
    """Seconds since 1970: when others may take it."""

    token: str = ""
    """Of one claim; no other has it."""

    machine: str = ""
    """Of the holder, since it was started: see :func:`machine`."""

    @property
    def is_over(self) -> bool:
        """Whether others may take it."""
        return time.time() >= self.until

    def json(self) -> bytes:
        """As a line of JSON."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def parsed(cls, content: bytes | str) -> Record:
        """What :meth:`json` gave.

        Raises:
            ValueError: it is something else.
        """
        try:
            fields = json.loads(content)
            given = fields["holder"]
            holder = Holder(name=given) if isinstance(given, str) else _known(Holder, given)
            return _known(cls, {**fields, "holder": holder, "until": float(fields["until"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no lease: {content[:80]!r}") from error


def _known(kind: type[Fields], given: dict[str, Any]) -> Fields:
    """Without what a later version may have written."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in given.items() if name in names})


class LeaseHeldError(UserError):
    """Another training has the lease."""

    def __init__(self, place: str, holder: Holder, until: float = 0.0):
        self.place, self.holder, self.until = place, holder, until
        since = f" since {clock_time(holder.since)}" if holder.since else ""
        killed = f" (if it was killed, until {clock_time(until)}, when its lease is over)"
        super().__init__(
            f"{place}: {holder} is training on these checkpoints{since}, and there can be only "
            f"one; wait for its end{killed if until else ''} or stop it, or give this training a "
            "train.resume_id of its own"
        )


class LeaseLostError(UserError):
    """This training has the lease no more, and writes no more checkpoints."""

    def __init__(self, place: str, why: str, holder: Holder | None = None):
        self.place, self.holder = place, holder
        super().__init__(
            f"{place}: this training has lost its lease ({why}), and saves nothing more. Start it "
            "again when no other training uses these checkpoints; it goes on from the newest one."
        )


def machine() -> str:
    """This host since it was started, and its process numbers: a container has its own."""
    found = [socket.gethostname()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as file:
            found.append(file.read().strip())
        found.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(found)


def clock_time(seconds: float) -> str:
    """Seconds since 1970, for people."""
    return f"{datetime.datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S %Z}"
