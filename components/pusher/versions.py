"""The versions of a model in a folder that TensorFlow Serving watches.

Each is a folder whose name is a number, and the highest is served
(https://www.tensorflow.org/tfx/serving/serving_config). Serving ignores other names.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import tensorflow as tf
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.manifest import Damage, Manifest
from stagecraft.components.object_store import filesystem
from stagecraft.components.pusher import owner

SAVED_MODEL = r"saved_model\.(pb|pbtxt|cpb)"
"""Pattern of a SavedModel's main file. A reader that finds it assumes a complete model."""

HIGHEST = 2**63 - 1  # TensorFlow Serving stores a version as int64
TEMPORARY = ".pushing-"
"""Prefix of a folder that becomes a version when it has all files, or that was one."""

_ABANDONED = 24 * 3600  # seconds after its last change until such a folder counts as abandoned


class Version(NamedTuple):
    """A version of a model."""

    path: str
    number: int


class DamagedCopyError(UserError):
    """A pushed copy that differs from the model, when the Pusher reads it back."""

    def __init__(self, folder: str, damages: list[Damage]):
        first = damages[0]
        path = first.path(folder)
        super().__init__(
            f"{path}: {first}, although the Pusher has just copied it from the model. No version "
            "was pushed. Check the disk or the object store, or choose another folder as "
            "push.directory.",
            setting="push.directory",
            file=path,
            record=first.name,
        )
        self.damages = tuple(damages)


def damages_of(version: str) -> list[Damage]:
    """The files of a version that are not those that the Pusher wrote.

    Empty for a version of another program or an earlier Stagecraft, without ``.manifest.json``. In
    an object store, compares only sizes if the version is larger than 64 MiB.
    """
    content = filesystem.read(posixpath.join(version, manifest.FILE))
    if content is None:
        return []
    try:
        return manifest.compare(version, content.decode())
    except (ValueError, TypeError):
        return [Damage(manifest.FILE, None, manifest.File(len(content)))]


def check_copy(folder: str, files: Manifest) -> None:
    """Reads a copy of a model back; raises DamagedCopyError if it differs from the model."""
    if damages := manifest.compare(folder, manifest.text_of(files), thorough=True):
        raise DamagedCopyError(folder, damages)


def numbers(folder: str) -> list[int]:
    """The numbers of all versions, highest first."""
    names = entries(folder)
    return sorted((int(name) for name in names if owner.is_version(name)), reverse=True)


def complete(folder: str) -> list[int]:
    """:func:`numbers` without those that an interrupted push left: they have no main file."""
    return [each for each in numbers(folder) if main_files(posixpath.join(folder, str(each)))]


def main_files(model: str) -> list[str]:
    """Names of a SavedModel's main files; usually one."""
    return [name for name in entries(model) if re.fullmatch(SAVED_MODEL, name)]


def next_version(folder: str, names: Iterable[str], now: float) -> int:
    """The number of a new version: the time (s since 1970), or the highest version plus one."""
    number = max(int(now), 1 + int(owner.newest(names) or 0))
    if number > HIGHEST:
        raise UserError(
            f"{folder}: has version {HIGHEST}, the highest of TensorFlow Serving. Remove it, or "
            "choose another folder as push.directory.",
            setting="push.directory",
            file=folder,
        )
    return number


def write_version(
    model: str,
    folder: str,
    pushed_by: owner.Owner | None = None,
    files: Manifest | None = None,
    more: Mapping[str, bytes] | None = None,
) -> Version:
    """Copies a model to a folder as its highest version, atomically, and reads the copy back.

    On a disk, this function copies the model to a hidden folder, and renames it. An object store
    cannot rename: there, ``saved_model.pb`` is written last, and a failed copy is removed.

    Args:
        pushed_by: written to the version; None: not known.
        files: those of the model; None: as they are now.
        more: files that the version has besides those of the model, by name.

    Raises:
        DamagedCopyError: the copy differs from ``files``.
        UserError: the model is missing, or cannot be written.
    """
    if "://" in model or "://" in folder:
        filesystem.register()
    with explained(folder):
        main = main_files(model)
        if not main:
            raise UserError(
                f"{model}: has no saved_model.pb to push. Run the Trainer again, for example with "
                "--fresh --from Trainer.",
                file=model,
                suggestion="--fresh --from Trainer",
            )
        files = manifest.describe(model) if files is None else files
        if "://" in folder:
            return _upload(model, folder, main, pushed_by, files, more or {})
        return _copy(model, folder, pushed_by, files, more or {})


def _copy(
    model: str,
    folder: str,
    pushed_by: owner.Owner | None,
    files: Manifest,
    more: Mapping[str, bytes],
) -> Version:
    os.makedirs(folder, exist_ok=True)
    _remove_abandoned(folder)
    temporary = os.path.join(folder, TEMPORARY + uuid.uuid4().hex)
    try:
        io_utils.copy_dir(model, temporary)
        check_copy(temporary, files)
        _complete(temporary, pushed_by, files, more)
        while True:
            number = next_version(folder, os.listdir(folder), time.time())
            path = os.path.join(folder, str(number))
            try:
                os.rename(temporary, path)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                continue  # another push took this number first
            return Version(path, number)
    except BaseException:  # Ctrl-C too
        with contextlib.suppress(OSError, tf.errors.OpError):
            fileio.rmtree(temporary)
        raise


def _upload(
    model: str,
    folder: str,
    main: list[str],
    pushed_by: owner.Owner | None,
    files: Manifest,
    more: Mapping[str, bytes],
) -> Version:
    number = next_version(folder, entries(folder), time.time())
    path = posixpath.join(folder, str(number))
    try:
        paths = [posixpath.join(model.rstrip("/"), name) for name in main]
        io_utils.copy_dir(
            model, path, deny_regex_patterns=[re.escape(each) + "$" for each in paths]
        )
        check_copy(path, {name: each for name, each in files.items() if name not in main})
        _complete(path, pushed_by, files, more)
        for each in paths:
            io_utils.copy_file(each, posixpath.join(path, posixpath.basename(each)))
        check_copy(path, {name: files[name] for name in main})
    except BaseException:
        with contextlib.suppress(OSError, UserError, tf.errors.OpError):
            fileio.rmtree(path)
        raise
    return Version(path, number)


def _complete(
    version: str, pushed_by: owner.Owner | None, files: Manifest, more: Mapping[str, bytes]
) -> None:
    described = {name: manifest.of_bytes(content) for name, content in more.items()}
    for name, content in more.items():
        path = posixpath.join(version, name)
        fileio.makedirs(posixpath.dirname(path))
        with fileio.open(path, "wb") as file:
            file.write(content)
    check_copy(version, described)
    text = manifest.text_of({**files, **described})
    io_utils.write_string_file(posixpath.join(version, manifest.FILE), text)
    if pushed_by is not None:
        text = json.dumps(dict(pushed_by), indent=1)
        io_utils.write_string_file(posixpath.join(version, owner.FILE), text)


def _remove_abandoned(folder: str) -> None:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if not name.startswith(TEMPORARY):
            continue
        with contextlib.suppress(
            FileNotFoundError, fileio.NotFoundError
        ):  # it was renamed to a version in the meantime
            if os.path.getmtime(path) < time.time() - _ABANDONED:
                fileio.rmtree(path)


def entries(folder: str) -> list[str]:
    """Names of a folder's entries; empty if the folder does not exist."""
    return [name.rstrip("/") for name in fileio.listdir(folder)] if fileio.isdir(folder) else []


@contextlib.contextmanager
def explained(folder: str) -> Iterator[None]:
    """Raises a UserError if the folder cannot be read or written."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise UserError(
            f"{folder}: cannot write the model: {why}. Free space or grant permission there, or "
            "choose another folder as push.directory.",
            setting="push.directory",
            file=folder,
        ) from error
