"""Folders that are there whole or not at all: checkpoints and exported models."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

from stagecraft.schemas.errors import UserError

PARTIAL = ".partial"
"""Ending of a folder that is being written; after a crash it may be left, and means nothing."""

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space there",
    errno.EDQUOT: "the disk quota is used up; free some space there",
    errno.EROFS: "the file system is read-only; choose another output folder",
    errno.EACCES: "no permission to write there; choose another output folder",
}


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a new folder that becomes ``path`` when the block ends, durably, and by a rename.

    When the block fails or is interrupted, nothing is left. A folder that is at ``path``
    already is replaced.

    Raises:
        UserError: the disk is full, or ``path`` cannot be written.
    """
    path = pathlib.Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    with disk_errors(path):
        try:
            aside.mkdir(parents=True)
            yield aside
            _sync(aside)
            if path.exists():
                shutil.rmtree(path)
            aside.rename(path)
            _sync_entry(path.parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


@contextlib.contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Says it plainly when what the block writes under ``path`` does not fit or is not allowed.

    Raises:
        UserError: in place of the OSError, or TensorFlow's error, about it.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # TensorFlow's file errors carry the operating system's text, but not its number.
        for number, advice in _ADVICE.items():
            if getattr(error, "errno", None) == number or os.strerror(number) in str(error):
                raise UserError(f"{path}: cannot write: {advice} and run again") from error
        raise


def _sync(folder: pathlib.Path) -> None:
    """Puts everything below ``folder`` on the disk: a rename alone may outrun its contents."""
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
