"""Folders that appear and disappear whole: checkpoints and exported models."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

from stagecraft.common.errors import UserError

PARTIAL = ".partial"
"""Ending of a folder that is being written or removed; a crash may leave it behind."""

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space there",
    errno.EDQUOT: "the disk quota is used up; free some space there",
    errno.EROFS: "the file system is read-only; choose another output folder",
    errno.EACCES: "no permission to write there; choose another output folder",
}


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a new folder that the end of the block renames to ``path``, after an fsync.

    An error or an interrupt in the block leaves nothing behind. A folder at ``path`` is replaced.

    Raises:
        UserError: the disk is full, or ``path`` is not writable.
    """
    path = pathlib.Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    with disk_errors(path):
        try:
            aside.mkdir(parents=True)
            yield aside
            _sync(aside)
            replaced = _set_aside(path) if path.exists() else None
            aside.rename(path)
            _sync_entry(path.parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    if replaced:
        shutil.rmtree(replaced, ignore_errors=True)


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Removes a folder of :func:`atomic_folder`; a crash leaves it whole or marked as partial."""
    with disk_errors(path):
        aside = _set_aside(pathlib.Path(path))
    shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(root: str | os.PathLike[str]) -> None:
    """Removes folders that a crash left half-written or half-removed in ``root``.

    Call it only in the one process that writes there: folders in progress look the same.
    """
    for leftover in pathlib.Path(root).glob(f".*{PARTIAL}"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextlib.contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns errors about a full or unwritable disk into a UserError of one sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # TensorFlow's file errors carry the operating system's text, but not its number.
        for number, advice in _ADVICE.items():
            if getattr(error, "errno", None) == number or os.strerror(number) in str(error):
                raise UserError(
                    f"{path}: cannot write: {advice} and run again", file=str(path)
                ) from error
        raise


def _set_aside(path: pathlib.Path) -> pathlib.Path:
    """Renames a folder to a partial one; returns the new path."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.old{PARTIAL}")
    shutil.rmtree(aside, ignore_errors=True)  # left by a removal that a crash interrupted
    return path.rename(aside)


def _sync(folder: pathlib.Path) -> None:
    """Flushes everything below ``folder`` to the disk: a rename may become durable earlier."""
    for parent, _, files in os.walk(folder):
        for name in files:
            _sync_entry(pathlib.Path(parent, name))
        _sync_entry(pathlib.Path(parent))


def _sync_entry(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
