"""Lets one training at a time write to a folder of checkpoints, by a lock and a lease.

The kernel frees the lock on ``.lock`` when its process ends, even by SIGKILL. But some file systems
have no locks, or separate ones for each machine (SMB, FUSE). The lease works across machines. A
killed process leaves its lease behind for a minute: on the same machine the lock shows that the
process is gone; another machine waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import pathlib
import time
from collections.abc import Iterator

from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors
from stagecraft.trainer_module.checkpointing.lease import (
    Holder,
    LeaseHeldError,
    Record,
    VolumeLease,
    machine,
)
from stagecraft.trainer_module.processes.process import is_running

FILE_NAME = ".lock"
"""The file stays: removing it could remove it under a process that has just locked it."""

_SECONDS, _GRACE = 60.0, 15.0

_NAMING_SECONDS = 10.0
"""Time for the holder of the lock to write its name into the lease."""

_LOOK_SECONDS = 0.05

_log = logging.getLogger(__name__)

_progress = logging.getLogger("stagecraft.progress")

_clock = time.monotonic

_name = ""


def call_holder(name: str) -> None:
    """Sets the holder's name for this process: a later training of the same name takes over."""
    global _name
    _name = name


@contextlib.contextmanager
def locked(root: pathlib.Path) -> Iterator[VolumeLease]:
    """Holds ``root``, which it creates, during the block; call the lease's ``check`` to write.

    Raises:
        LeaseHeldError: another training holds ``root``.
    """
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        file = (root / FILE_NAME).open("a+")
    lease = VolumeLease(root, name=_name, seconds=_SECONDS, grace=_GRACE)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            raise LeaseHeldError(str(root), Record(holder=_holder(lease), until=0.0)) from None
        except OSError as error:  # some network file systems have no locks
            _log.info("%s: no lock (%s); only the lease protects it", root, error.strerror)
            alone = False
        with disk_errors(root):
            _claim(lease, alone)
        try:
            with lease.renewed():
                yield lease
        finally:
            with contextlib.suppress(OSError):
                lease.release()


def _claim(lease: VolumeLease, alone: bool) -> None:
    """Takes the lease; ``alone``: this process has the lock.

    A holder on another machine counts as dead if it does not renew the lease until its end, and not
    for a whole term by the clock of this process: the clock that set the end may be wrong.
    """
    first: Record | None = None
    longest, began = lease.seconds + lease.grace, 0.0

    def is_dead(record: Record) -> bool:
        silent = record == first and _clock() - began >= longest
        return silent or _is_gone(record) or (alone and record.machine == machine())

    while True:
        try:
            lease.claim(is_dead)
            return
        except LeaseHeldError as error:
            if first is None:
                first, began = error.lease, _clock()
                _tell(lease.place, error.lease, min(longest, error.until - time.time()))
            elif error.lease != first:  # renewed, or taken
                raise
        left = min(first.until - time.time(), longest - (_clock() - began))
        time.sleep(min(1.0, max(_LOOK_SECONDS, left)))


def _tell(place: str, record: Record, seconds: float) -> None:
    """Says for whom the training waits, and for how long."""
    holder, whole = str(record.holder), math.ceil(seconds)
    _progress.warning(
        "waiting for at most %d s: %s may still use %s",
        whole,
        holder,
        place,
        extra={"progress": {"phase": "wait", "holder": holder, "seconds": whole, "file": place}},
    )


def _holder(lease: VolumeLease) -> Holder:
    """Waits until the lease names the holder of the lock."""
    deadline = time.monotonic() + _NAMING_SECONDS
    while time.monotonic() < deadline:
        record, _ = lease.read()
        if record and not record.is_over and not _is_gone(record):
            return record.holder
        time.sleep(_LOOK_SECONDS)
    return Holder()


def _is_gone(record: Record) -> bool:
    """Whether a process of this machine left the lease and has ended."""
    return record.machine == machine() and not is_running(record.holder.process)
