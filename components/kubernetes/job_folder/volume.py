"""A training's folder on a volume, which the Trainer's step has and the training's pods have."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping

from stagecraft.schemas.errors import UserError


def is_below(path: str, folder: str) -> bool:
    """Whether a path is in a folder, or it."""
    return pathlib.PurePath(os.path.normpath(path)).is_relative_to(folder)


def bring(sources: Mapping[str, str], folder: pathlib.Path) -> None:
    """Copies folders into one, unless an attempt before has: name there -> where it is.

    Raises:
        UserError: the folder cannot be written.
    """
    with writable(folder):
        for name, source in sources.items():
            _copy(source, folder / name)


@contextlib.contextmanager
def writable(folder: pathlib.Path) -> Iterator[None]:
    """Says in the block's place what is wrong with a folder.

    Raises:
        UserError: it cannot be written.
    """
    try:
        yield
    except OSError as error:  # a copy's, of several, has neither
        why = error.strerror or " ".join(str(error).split())
        raise UserError(
            f"kubeflow.job.folder: {error.filename or folder}: cannot be written ({why}); the "
            "volume has to have space, and to let the step's user write, which is 1000 of group 0"
        ) from error


def _copy(source: str, place: pathlib.Path) -> None:
    """A whole copy, or none."""
    if not place.exists():
        unfinished = place.with_name(f".{place.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(source, unfinished)
        unfinished.rename(place)
