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

_REPLACED = f".replaced{PARTIAL}"
"""Ending of a whole folder that waits for another one in its place."""

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
    If a crash comes in between, :func:`remove_leftovers` puts it back; without that call, it stays
    under another name.

    Raises:
        UserError: the disk is full, or ``path`` is not writable.
    """
    path = pathlib.Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    replaced = None
    with disk_errors(path):
        try:
            aside.mkdir(parents=True)
            yield aside
            _sync(aside)
            if path.exists():
                replaced = _set_aside(path, _REPLACED)
            aside.rename(path)
            _sync_entry(path.parent)
        except BaseException:
            if replaced and not path.exists():
                replaced.rename(path)
            elif replaced:
                shutil.rmtree(replaced, ignore_errors=True)
            shutil.rmtree(aside, ignore_errors=True)
            raise
    if replaced:
        shutil.rmtree(replaced, ignore_errors=True)


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Removes a folder of :func:`atomic_folder`; a crash leaves it whole or marked as partial."""
    with disk_errors(path):
        aside = _set_aside(pathlib.Path(path), f".old{PARTIAL}")
    shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(root: str | os.PathLike[str]) -> None:
    """Removes folders that a crash left half-written or half-removed in ``root``.

    Puts back a folder that a crash kept from being replaced. Call it only in the one process that
    writes there: folders in progress look the same.
    """
    for leftover in pathlib.Path(root).glob(f".*{PARTIAL}"):
        name, _, process = leftover.name.removesuffix(_REPLACED)[1:].rpartition(".")
        is_whole = leftover.name.endswith(_REPLACED) and process.isdigit()
        if is_whole and not leftover.with_name(name).exists():
            leftover.rename(leftover.with_name(name))
        else:
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


def _set_aside(path: pathlib.Path, ending: str) -> pathlib.Path:
    """Renames a folder; returns the new path."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{ending}")
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
