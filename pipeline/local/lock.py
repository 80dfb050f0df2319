"""One run at a time in an output folder."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
import time
from collections.abc import Iterator

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes.process import is_running

_NAMING_SECONDS = 5.0
"""How long a run that got the lock may take to write its number; another one's may be there."""

_held: set[pathlib.Path] = set()  # by this process; an inner hold of the same folder is free


@contextlib.contextmanager
def held(folder: pathlib.Path) -> Iterator[None]:
    """Holds ``folder/.lock`` for the time of the block; the kernel frees it if the process dies.

    Raises:
        UserError: another process holds it, or the folder cannot be written.
    """
    folder = folder.resolve()
    if folder in _held:
        yield
        return
    descriptor = _acquire(folder)
    _held.add(folder)
    try:
        yield
    finally:
        _held.discard(folder)
        os.close(descriptor)


def held_since(folder: pathlib.Path) -> float | None:
    """When the process that holds ``folder/.lock`` took it, in seconds since 1970.

    The kernel's table is read (proc_locks(5)): to try the lock could have a run refused that
    begins in the same moment.

    Returns:
        None where nobody holds it.
    """
    path = folder / ".lock"
    try:
        status, owner = path.stat(), path.read_text().strip()
        table = pathlib.Path("/proc/locks").read_text()
    except OSError:
        return None
    for line in table.splitlines():
        _, kind, _, _, process, place, *_ = line.split()
        inode = place.rpartition(":")[2]
        if (kind, process, inode) == ("FLOCK", owner, str(status.st_ino)):
            return status.st_mtime
    return None


def _acquire(folder: pathlib.Path) -> int:
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); give --output a folder that can"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner(descriptor)
        os.close(descriptor)
        raise UserError(
            f"{folder} is in use by another run (process {owner}); wait for it to end, or give "
            "--output another folder"
        ) from None
    except OSError as error:  # a file system that knows no locks
        logging.getLogger(__name__).warning("%s: not locked: %s", path, error)
        return descriptor
    with contextlib.suppress(OSError):  # a full disk: the lock holds without the note
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _owner(descriptor: int) -> str:
    """Who has the lock: whoever just got it has not written its number yet, and may do so now."""
    deadline = time.monotonic() + _NAMING_SECONDS
    while True:
        owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        if (owner.isdecimal() and is_running(int(owner))) or time.monotonic() > deadline:
            return owner or "unknown"
        time.sleep(0.05)
