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
"""Ending of a folder that is being written or removed; a crash may leave it, meaning nothing."""

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
            replaced = _set_aside(path) if path.exists() else None
            aside.rename(path)
            _sync_entry(path.parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    if replaced:
        shutil.rmtree(replaced, ignore_errors=True)


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Removes what :func:`atomic_folder` made: like it, whole or not at all.

    Raises:
        UserError: it cannot be removed.
    """
    with disk_errors(path):
        aside = _set_aside(pathlib.Path(path))
    shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(root: str | os.PathLike[str]) -> None:
    """Removes what a crash left half-written or half-removed in ``root``.

    Only for the one process that writes there: what another one is writing looks the same.
    """
    for leftover in pathlib.Path(root).glob(f".*{PARTIAL}"):
        shutil.rmtree(leftover, ignore_errors=True)


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


def _set_aside(path: pathlib.Path) -> pathlib.Path:
    """Renames a folder to what means nothing, and says how it is called now."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.old{PARTIAL}")
    shutil.rmtree(aside, ignore_errors=True)  # of an earlier removal that did not get through
    return path.rename(aside)


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
