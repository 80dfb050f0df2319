"""A lease on a folder of checkpoints: one training holds it, whichever machine it runs on.

A place that keeps leases has two operations: a read, and a write that fails with :class:`Conflict`
if another process wrote since the read (compare and swap). The holder renews its lease until it
releases it. A holder that cannot renew stops writing before the lease expires
(:meth:`Lease.check`); then another training may take it. The clocks of the machines may differ by
less than ``grace``. Imports no TensorFlow.

:class:`VolumeLease` is a lease in a folder of a volume that several machines may mount. The file
with the highest number in ``.lease/`` is the lease. A write creates the next number: it links a
temporary file to that name. link(2) fails if the name exists, and is atomic on NFS, too. On a
volume without hard links (Azure Files over SMB, some FUSE file systems), ``O_EXCL`` creates the
file. The two highest numbers stay: a process that stalled, and creates a number that was removed
meanwhile, still sees a higher one.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import datetime
import errno
import json
import logging
import os
import pathlib
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from stagecraft.common.errors import UserError

_TRIES = 20
"""Attempts at a claim, each after a conflict."""

_PAUSES = random.Random()
"""Separate from the process's generator, from which Keras draws the seeds of weights."""

_log = logging.getLogger(__name__)


class Conflict(Exception):
    """Another process has written since the lease was read."""


class Lease(abc.ABC):
    """A training's lease at a place.

    Subclasses implement :meth:`read` and :meth:`write`. Other methods are thread-safe.
    """

    def __init__(self, place: str, *, name: str = "", seconds: float, grace: float):
        """Reads and writes nothing yet.

        Args:
            place: the folder of checkpoints, for messages.
            name: of the holder. A later holder of the same name may take the lease at any time;
                the earlier one then gets a LeaseLostError.
            seconds: how long the holder may write after it has renewed.
            grace: seconds after that until others may take the lease.
        """
        self.place, self.seconds, self.grace = place, seconds, grace
        since = time.time()
        host, process = socket.gethostname(), os.getpid()
        self.holder = Holder(name=name, host=host, process=process, since=since)
        self._token = uuid.uuid4().hex
        self._version: str | None = None
        self._renewed = -float("inf")
        self._failure: Exception | None = None
        self._lost: LeaseLostError | None = None
        self._writing = threading.RLock()

    @abc.abstractmethod
    def read(self) -> tuple[Record | None, str | None]:
        """The record and its version for :meth:`write`; None and None if there is no lease."""

    @abc.abstractmethod
    def write(self, record: Record, version: str | None) -> str:
        """Writes if the version is still the same, in one atomic step; returns the new version.

        Raises:
            Conflict: another process has written.
            UserError: the place is not reachable, or not writable.
        """

    def claim(self, may_replace: Callable[[Record], bool] = lambda record: False) -> None:
        """Takes the lease; raises a LeaseHeldError if another training holds it.

        ``may_replace``: whether the holder of a record that is not over is known to be dead.
        """
        for tries in range(_TRIES):
            record, version = self.read()
            same = record and self.holder.name and record.holder.name == self.holder.name
            if record and not (same or record.is_over or may_replace(record)):
                raise LeaseHeldError(self.place, record)
            try:
                self._put(version)
                return
            except Conflict:
                time.sleep(_PAUSES.uniform(0, 0.02 * tries))
        raise UserError(
            f"{self.place}: other processes keep changing the lease; run again", file=self.place
        )

    def renew(self) -> None:
        """Extends the lease to ``seconds`` from now; raises a LeaseLostError if it is lost."""
        with self._writing:
            self._raise_lost()
            try:
                self._put(self._version)
            except Conflict:
                record, _ = self.read()
                reason = f"{record.holder} holds it now" if record else "it was removed"
                self._lost = LeaseLostError(self.place, reason, record.holder if record else None)
                raise self._lost from None

    def check(self) -> None:
        """Checks that this training holds the lease; call it before each write.

        Raises a LeaseLostError if another training holds it, or soon may, because renewing fails.
        """
        with self._writing:
            self._raise_lost()
            if _clock() - self._renewed < self.seconds / 2:
                return
            try:
                self.renew()
                return
            except LeaseLostError:
                raise
            except (OSError, UserError) as error:
                self._failure = error
            silent = _clock() - self._renewed
            if silent >= self.seconds:
                reason = f"the lease was not renewed for {silent:.0f} s: {self._failure}"
                self._lost = LeaseLostError(self.place, reason)
                raise self._lost

    def release(self, after: float = 0.0) -> None:
        """Ends the lease; another training may take it ``after`` so many seconds."""
        with self._writing:
            if self._lost is None:
                with contextlib.suppress(Conflict):
                    self._end(after)

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """A thread renews the lease during the block, ten times in each term."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(self.seconds / 10):
                try:
                    self.renew()
                except LeaseLostError as error:
                    _log.error("%s", error)
                    return
                except Exception as error:  # a network error; nine more tries
                    self._failure = error
                    _log.warning("%s: the lease was not renewed: %s", self.place, error)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def check_held_by(self, name: str) -> None:
        """Checks like :meth:`check`, in a process whose lease another process, ``name``, holds."""
        record, _ = self.read()
        if record and record.holder.name != name:
            raise LeaseLostError(self.place, f"{record.holder} holds it now", record.holder)
        if record and record.is_over:
            reason = f"the lease was not renewed, and expired at {clock_time(record.until)}"
            raise LeaseLostError(self.place, reason)

    def _end(self, after: float) -> None:
        self._put(self._version, lasts=after)

    def _put(self, version: str | None, lasts: float | None = None) -> None:
        begun = _clock()
        until = time.time() + (self.seconds + self.grace if lasts is None else lasts)
        record = Record(holder=self.holder, until=until, token=self._token, machine=machine())
        with self._writing:
            try:
                self._version = self.write(record, version)
            except Conflict:
                # A request that was sent twice: the second one sees the first one's result.
                current, current_version = self.read()
                if current != record:
                    raise
                self._version = current_version
            self._renewed = begun

    def _raise_lost(self) -> None:
        if self._lost is not None:
            raise self._lost


def _clock() -> float:
    """Seconds of a clock that also runs while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


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


FOLDER = ".lease"

_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)

_KEPT = 2
"""Number of files kept; the highest is the lease."""

_PART = ".part"

_PAUSE_SECONDS = 0.01

_STALE_SECONDS = 3600.0
"""Age of a temporary file whose process was killed."""


class VolumeLease(Lease):
    """A :class:`Lease` on a disk; its methods raise OSError on errors of the disk."""

    def __init__(self, root: pathlib.Path, *, name: str = "", seconds: float, grace: float):
        super().__init__(str(root), name=name, seconds=seconds, grace=grace)
        self._folder = root / FOLDER

    def read(self) -> tuple[Record | None, str | None]:
        """See :class:`Lease`. A file that cannot be parsed is incomplete, and holds for a term."""
        while numbers := self._numbers():
            path = self._path(numbers[-1])
            try:
                content, written = path.read_bytes(), path.stat().st_mtime
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
                # A higher number exists by now; NFS may list the old one for some seconds.
                time.sleep(_PAUSE_SECONDS)
                continue
            try:
                return Record.parsed(content), str(numbers[-1])
            except ValueError:
                # Another process has created the file (O_EXCL), and may not have written it yet.
                until = written + self.seconds + self.grace
                return Record(holder=Holder(), until=until), str(numbers[-1])
        return None, None

    def write(self, record: Record, version: str | None) -> str:
        """See :class:`Lease`."""
        number = int(version or 0) + 1
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make(number, record.json())
        numbers = self._numbers()
        if max(numbers, default=0) > number:  # this process stalled: the number is outdated
            self._path(number).unlink(missing_ok=True)
            raise Conflict
        self._clean(numbers[:-_KEPT])
        return str(number)

    def _make(self, number: int, content: bytes) -> None:
        part = self._folder / f"{uuid.uuid4().hex}{_PART}"
        try:
            part.write_bytes(content)
            try:
                os.link(part, self._path(number))
            except FileExistsError:
                # NFS may report this for a request that was sent twice (open(2), O_EXCL).
                if part.stat().st_nlink != 2:
                    raise Conflict from None
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                try:
                    with self._path(number).open("xb") as file:
                        file.write(content)
                except FileExistsError:
                    raise Conflict from None
        finally:
            part.unlink(missing_ok=True)

    def _clean(self, numbers: list[int]) -> None:
        with contextlib.suppress(OSError):
            for number in numbers:
                self._path(number).unlink(missing_ok=True)
            for part in self._folder.glob(f"*{_PART}"):
                if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                    part.unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self._folder) if name.isdecimal())
        except FileNotFoundError:
            return []

    def _path(self, number: int) -> pathlib.Path:
        return self._folder / f"{number:08d}"
