"""One training at a time on a folder of checkpoints: two would take each other's for their own.

A lock and a lease keep the others out. The kernel frees the lock on ``.lock`` when its process
ends, however it ends. But some file systems have no locks, or separate ones for each machine (SMB,
FUSE). The lease (:mod:`~stagecraft.trainer_module.checkpointing.volume_lease`) holds among
machines, and says who has it. A process that is killed leaves its lease behind, for a minute. On
the same machine the lock tells that the process is gone; another machine waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import pathlib
import time
from collections.abc import Iterator

from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors
from stagecraft.trainer_module.checkpointing.lease_record import (
    Holder,
    LeaseHeldError,
    Record,
    machine,
)
from stagecraft.trainer_module.checkpointing.volume_lease import VolumeLease
from stagecraft.trainer_module.processes.process import is_running

FILE_NAME = ".lock"
"""Stays when it is free: whoever removed it could remove it under one who just took it."""

_SECONDS, _GRACE = 60.0, 15.0

_NAMING_SECONDS = 10.0
"""How long whoever has the lock may take to write that."""

_LOOK_SECONDS = 0.05

_log = logging.getLogger(__name__)

_name = ""


def call_holder(name: str) -> None:
    """Names the training that this process is a part of: of the same name, the last one holds."""
    global _name
    _name = name


@contextlib.contextmanager
def locked(root: pathlib.Path) -> Iterator[VolumeLease]:
    """Holds ``root`` during the block; it is made where it is not there.

    Yields:
        The lease, whose ``check`` has to pass before anything is written.

    Raises:
        LeaseHeldError: another training holds it.
        UserError: ``root`` cannot be written.
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
            raise LeaseHeldError(str(root), _holder(lease)) from None
        except OSError as error:  # some network file systems have no locks
            _log.info("%s: cannot be locked (%s); the lease alone holds", root, error.strerror)
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
    """Takes the lease.

    A holder on another machine may be dead: it is, if it does not renew the lease to its end.

    Args:
        lease: of the folder.
        alone: whether this process has the lock.

    Raises:
        LeaseHeldError: the holder lives.
    """

    def is_dead(found: Record) -> bool:
        return _is_gone(found) or (alone and found.machine == machine())

    told = None
    while True:
        try:
            lease.claim(is_dead)
            return
        except LeaseHeldError as error:
            if told is None:
                told = error
                _log.info(
                    "%s: %s has the lease; waiting for it to renew", lease.place, error.holder
                )
            elif error.until != told.until or error.holder != told.holder:  # renewed, or taken
                raise
        time.sleep(min(1.0, max(0.0, told.until - time.time())))


def _holder(lease: VolumeLease) -> Holder:
    """Who has the lock: what the lease says, as soon as it is the lock's holder who says so."""
    deadline = time.monotonic() + _NAMING_SECONDS
    while time.monotonic() < deadline:
        found, _ = lease.read()
        if found and not found.is_over and not _is_gone(found):
            return found.holder
        time.sleep(_LOOK_SECONDS)
    return Holder()


def _is_gone(found: Record) -> bool:
    """Whether a lease was left by a process of this machine that is no more."""
    return found.machine == machine() and not is_running(found.holder.process)
