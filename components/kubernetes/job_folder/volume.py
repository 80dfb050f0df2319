"""A job folder on a volume that the Trainer's step and the job's pods mount."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping

from stagecraft.schemas.errors import UserError


def is_below(path: str, folder: str) -> bool:
    """Whether a path is the folder, or below it."""
    return pathlib.PurePath(os.path.normpath(path)).is_relative_to(folder)


def copy_once(sources: Mapping[str, str], folder: pathlib.Path) -> None:
    """Copies folders into another one, unless an earlier attempt has done so.

    Args:
        sources: name in ``folder`` -> path of a source.
        folder: on the volume.

    Raises:
        UserError: the folder cannot be written.
    """
    with writable(folder):
        for name, source in sources.items():
            _copy(source, folder / name)


@contextlib.contextmanager
def writable(folder: pathlib.Path) -> Iterator[None]:
    """Turns OSErrors of the block into a sentence.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        yield
    except OSError as error:  # shutil.Error has neither strerror nor filename
        why = error.strerror or " ".join(str(error).split())
        raise UserError(
            f"kubeflow.job.folder: {error.filename or folder} cannot be written ({why}). The "
            "volume needs space, and write permission for user 1000 of group 0.",
            setting="kubeflow.job.folder",
            file=str(error.filename or folder),
        ) from error


def _copy(source: str, target: pathlib.Path) -> None:
    """Makes a complete copy, or none."""
    if not target.exists():
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(source, unfinished)
        unfinished.rename(target)
