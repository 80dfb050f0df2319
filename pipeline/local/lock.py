"""A lock that lets one run at a time use an output folder."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
import time
from collections.abc import Iterator

from stagecraft.common.errors import UserError
from stagecraft.pipeline.local.layout import OutputError
from stagecraft.trainer_module.processes.process import is_running

_NAMING_SECONDS = 5.0
"""Seconds that a new holder may take to write its process ID over its predecessor's."""


class InUseError(UserError):
    """Another process holds the folder."""

    def __init__(self, folder: pathlib.Path, owner: str):
        """``owner``: its process ID."""
        super().__init__(
            f"{folder} is in use by another run (process {owner}); wait for it to end, or use "
            "another --output",
            setting="--output",
            value=str(folder),
        )


_held: set[pathlib.Path] = set()  # by this process, which may hold a folder twice


@contextlib.contextmanager
def held(folder: pathlib.Path) -> Iterator[None]:
    """Holds ``folder/.lock`` in the block; if the process dies, the kernel releases the lock."""
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


def check(folder: pathlib.Path) -> None:
    """Refuses a folder that another process holds, as :func:`held` does; does not take the lock.

    Raises:
        InUseError: as said.
    """
    holder = None if folder.resolve() in _held else _holder(folder)
    if holder is not None:
        raise InUseError(folder.resolve(), holder[0])


def held_since(folder: pathlib.Path) -> float | None:
    """The time at which a process took ``folder/.lock``, in seconds since 1970, or None."""
    holder = _holder(folder)
    return None if holder is None else holder[1]


def _holder(folder: pathlib.Path) -> tuple[str, float] | None:
    """The process ID of the holder, and when it took the lock, in seconds since 1970.

    Reads proc_locks(5): trying to take the lock could make a run fail that begins just then.
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
            return owner, status.st_mtime
    return None


def _acquire(folder: pathlib.Path) -> int:
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputError(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner(descriptor)
        os.close(descriptor)
        raise InUseError(folder, owner) from None
    except OSError as error:  # a file system without locks
        logging.getLogger(__name__).warning("%s: not locked: %s", path, error)
        return descriptor
    with contextlib.suppress(OSError):  # a full disk: the lock works without the process ID
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _owner(descriptor: int) -> str:
    """The process ID of the holder; waits for a new holder to write it."""
    deadline = time.monotonic() + _NAMING_SECONDS
    while True:
        owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        if (owner.isdecimal() and is_running(int(owner))) or time.monotonic() > deadline:
            return owner or "unknown"
        time.sleep(0.05)
