"""The versions of a model in a folder that TensorFlow Serving watches.

Each is a folder whose name is a number, and the highest is served
(https://www.tensorflow.org/tfx/serving/serving_config). Names that are no numbers are ignored.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from stagecraft.components.object_store import filesystem
from stagecraft.schemas.errors import UserError

SAVED_MODEL = r"saved_model\.(pb|pbtxt|cpb)"
"""Pattern of a SavedModel's main file; a reader that finds it takes the model for complete."""

HIGHEST = 2**63 - 1
"""TensorFlow Serving keeps a version as int64."""

_ASIDE = ".pushing-"
"""Prefix of a folder that becomes a version when all files are there."""

_ABANDONED = 24 * 3600
"""Seconds after its last change, when such a folder counts as left by a killed push."""


class Version(NamedTuple):
    """A version that was written."""

    path: str
    number: int


def next_version(folder: str, names: Iterable[str], now: float) -> int:
    """The number of a new version: the time, or where one is as high, the next one.

    Args:
        folder: for the message.
        names: of what is in it.
        now: seconds since 1970.

    Raises:
        UserError: no number is left.
    """
    there = (int(name) for name in names if re.fullmatch("[0-9]{1,19}", name))
    number = max(int(now), 1 + max(there, default=0))
    if number > HIGHEST:
        raise UserError(
            f"{folder}: has version {HIGHEST}, and TensorFlow Serving knows no higher one. Remove "
            "it, or choose another folder as push.directory."
        )
    return number


def write_version(model: str, folder: str) -> Version:
    """Copies a model to a folder as its highest version, whole or not at all.

    On a disk, the model is copied to a hidden folder, which is then renamed. An object store cannot
    rename: there, ``saved_model.pb`` comes last, and a copy that fails is removed.

    Args:
        model: folder of a SavedModel.
        folder: holds the versions; made if it is not there.

    Raises:
        UserError: there is no SavedModel, or it cannot be written there.
    """
    if "://" in model or "://" in folder:
        filesystem.register()
    with _explained(folder):
        main = [name for name in _names(model) if re.fullmatch(SAVED_MODEL, name)]
        if not main:
            raise UserError(
                f"{model}: has no saved_model.pb, so there is nothing to push. Run the Trainer "
                "again, such as with --fresh --from Trainer."
            )
        return _upload(model, folder, main) if "://" in folder else _copy(model, folder)


def _copy(model: str, folder: str) -> Version:
    os.makedirs(folder, exist_ok=True)
    _remove_abandoned(folder)
    aside = os.path.join(folder, _ASIDE + uuid.uuid4().hex)
    try:
        io_utils.copy_dir(model, aside)
        while True:
            number = next_version(folder, os.listdir(folder), time.time())
            path = os.path.join(folder, str(number))
            try:
                os.rename(aside, path)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                continue  # another push took this number first
            return Version(path, number)
    except BaseException:  # Ctrl-C too
        with contextlib.suppress(OSError, tf.errors.OpError):
            _remove(aside)
        raise


def _upload(model: str, folder: str, main: list[str]) -> Version:
    number = next_version(folder, _names(folder), time.time())
    path = posixpath.join(folder, str(number))
    try:
        paths = [posixpath.join(model.rstrip("/"), name) for name in main]
        io_utils.copy_dir(
            model, path, deny_regex_patterns=[re.escape(each) + "$" for each in paths]
        )
        for each in paths:
            io_utils.copy_file(each, posixpath.join(path, posixpath.basename(each)))
    except BaseException:
        with contextlib.suppress(OSError, UserError, tf.errors.OpError):
            _remove(path)
        raise
    return Version(path, number)


def _remove_abandoned(folder: str) -> None:
    """Removes what killed pushes left behind."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if not name.startswith(_ASIDE):
            continue
        with contextlib.suppress(FileNotFoundError):  # it has become a version meanwhile
            if os.path.getmtime(path) < time.time() - _ABANDONED:
                _remove(path)


def _names(folder: str) -> list[str]:
    """Of what is in a folder; none where there is no folder."""
    return [name.rstrip("/") for name in fileio.listdir(folder)] if fileio.isdir(folder) else []


def _remove(path: str) -> None:
    if fileio.exists(path):
        fileio.rmtree(path)


@contextlib.contextmanager
def _explained(folder: str) -> Iterator[None]:
    """Names the folder where it cannot be written."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise UserError(
            f"{folder}: the model cannot be written there: {why}. Make room or give permission "
            "there, or choose another folder as push.directory."
        ) from error
