"""Object stores for TFX: ``s3://`` and ``minio://`` addresses, which TensorFlow cannot read.

After :func:`register`, everything that uses ``tfx.dsl.io.fileio`` supports them: TFX's Pusher,
``io_utils.copy_dir``, this project's ExampleGen. TensorFlow's operations (``tf.data``, loading a
SavedModel) do not.

An object store has no folders, only names with slashes. So there are no empty folders, and a
folder disappears with its last file. Renaming a folder copies each file and is not atomic.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
import posixpath
import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tfx.dsl.io import filesystem, filesystem_registry

from stagecraft.components.object_store.location import STORE, Location, explained, locate

PathType = str | bytes

_PIECE = 1 << 20  # bytes


class Stat(NamedTuple):
    """Metadata of a file, under TensorFlow's names (``tf.io.gfile.stat``)."""

    length: int
    mtime_nsec: int
    """Time of the last write, in nanoseconds since 1970; 0 for a folder of an object store."""
    is_directory: bool


class ObjectStore(filesystem.Filesystem):
    """TFX's file system over fsspec. A missing file raises TFX's NotFoundError.

    If the store cannot be reached, or refuses the credentials, it raises a UserError.
    """

    SUPPORTED_SCHEMES = ["s3://", "minio://"]

    @staticmethod
    def open(name: PathType, mode: str = "r") -> Any:
        """Opens a file, for text (UTF-8) unless the mode has a ``b``; closing completes a write."""
        stream = locate(name).open(mode.strip("bt") + "b")
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding="utf-8")

    @staticmethod
    def copy(src: PathType, dst: PathType, overwrite: bool = False) -> None:
        """Copies a file; if both places are in the same store, the server copies."""
        _refuse_existing(dst, overwrite)
        locate(src).copy_to(locate(dst))

    @staticmethod
    def exists(path: PathType) -> bool:
        """Whether a file or a folder exists."""
        try:
            locate(path).info()
        except filesystem.NotFoundError:
            return False
        return True

    @staticmethod
    def glob(pattern: PathType) -> list[str]:
        """Matching addresses, sorted; ``*`` matches no slash."""
        place = locate(pattern)
        within = place.path[len(place.root) :]
        with explained(place.uri):
            found = place.store.glob(glob.escape(place.root) + within)
        return sorted({place.uri_of(path.rstrip("/")) for path in found})

    @staticmethod
    def isdir(path: PathType) -> bool:
        """Whether the path is a folder: names exist that begin with it and a slash."""
        try:
            return locate(path).is_folder()
        except filesystem.NotFoundError:
            return False

    @staticmethod
    def listdir(path: PathType) -> list[str]:
        """Names of a folder's entries, sorted; none ends with a slash."""
        return sorted(locate(path).entries())

    @staticmethod
    def makedirs(path: PathType) -> None:
        """Does nothing: a folder exists from its first file on."""
        locate(path)

    mkdir = makedirs

    @staticmethod
    def remove(path: PathType) -> None:
        """Removes a file."""
        place = locate(path)
        if place.is_folder():
            raise IsADirectoryError(errno.EISDIR, "Is a folder", place.uri)
        place.remove([place.path])

    @staticmethod
    def rename(src: PathType, dst: PathType, overwrite: bool = False) -> None:
        """Renames a file or a folder: copies it, then removes the original."""
        _refuse_existing(dst, overwrite)
        source, target = locate(src), locate(dst)
        files = source.files()
        for path in files:
            renamed = target.path + path[len(source.path) :]
            source._replace(path=path).copy_to(target._replace(path=renamed))
        source.remove(files)

    @staticmethod
    def rmtree(path: PathType) -> None:
        """Removes a folder and its content; an empty bucket stays."""
        place = locate(path)
        if not place.is_folder():
            raise NotADirectoryError(errno.ENOTDIR, "Not a folder", place.uri)
        place.remove(place.files())

    @staticmethod
    def stat(path: PathType) -> Stat:
        """Size and time of a file."""
        info = locate(path).info()
        written = info.get("LastModified") or info.get("mtime", 0)
        seconds = written if isinstance(written, int | float) else written.timestamp()
        return Stat(int(info["size"]), int(seconds * 1e9), info["type"] == "directory")

    @staticmethod
    def walk(
        top: PathType, topdown: bool = True, onerror: Callable[..., None] | None = None
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Walks like ``os.walk``: addresses, folders, files; raises if the store fails."""
        folder = os.fsdecode(top)
        try:
            entries = locate(folder).entries()
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        folders = sorted(name for name in entries if entries[name])
        files = sorted(entries.keys() - folders)
        if topdown:
            yield folder, folders, files
        for name in folders:
            yield from ObjectStore.walk(posixpath.join(folder, name), topdown, onerror)
        if not topdown:
            yield folder, folders, files


class FolderStore(ObjectStore):
    """Serves all stores from STAGECRAFT_STORE's folder, also ``gs://``."""

    SUPPORTED_SCHEMES = ["gs://", "s3://", "minio://"]


def register() -> None:
    """Registers the file system in ``tfx.dsl.io.fileio``; a second call changes nothing.

    If STAGECRAFT_STORE is set, its folder serves all addresses, also ``gs://``.
    """
    # TFX's plugin for TensorFlow claims gs:// and s3:// with priority 10; lower wins.
    filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(_store(), priority=0)


def _store() -> type[ObjectStore]:
    return FolderStore if os.environ.get(STORE) else ObjectStore


def served(uri: str) -> bool:
    """Whether :class:`ObjectStore` serves the address, not TensorFlow or the operating system."""
    return uri.startswith(tuple(_store().SUPPORTED_SCHEMES))


def upload(path: str, uri: str) -> None:
    """Copies a local file to an address, in pieces; replaces an existing file."""
    with open(path, "rb") as reader, _fileio().open(uri, "wb") as writer:
        shutil.copyfileobj(reader, writer, _PIECE)


def write_atomically(uri: str, content: bytes) -> None:
    """Writes a small file, local or not: readers see the old content or the new one."""
    place = _place(uri)
    if place is not None and not place.root:
        with explained(uri):
            place.store.pipe_file(place.path, content)
    elif place is not None or "://" not in uri:
        _replace(place.path if place is not None else uri, content)
    else:
        # gs:// through TensorFlow: the object appears when its upload ends.
        with _fileio().open(uri, "wb") as stream:
            stream.write(content)


def read(uri: str) -> bytes | None:
    """Content of a small file; None: it does not exist."""
    if (place := _place(uri)) is not None:
        try:
            with explained(uri):
                return bytes(place.store.cat_file(place.path))
        except filesystem.NotFoundError:
            return None
    if not _fileio().exists(uri):
        return None
    with _fileio().open(uri, "rb") as stream:
        return bytes(stream.read())


def _place(uri: str) -> Location | None:
    """The location; None if TensorFlow or the operating system serves the address."""
    return locate(uri) if served(uri) else None


def _fileio() -> Any:
    from tfx.dsl.io import fileio  # imports TensorFlow

    return fileio


def _replace(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    part = f"{path}.{uuid.uuid4().hex}.part"
    try:
        with open(part, "wb") as stream:
            stream.write(content)
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def _refuse_existing(path: PathType, overwrite: bool) -> None:
    if not overwrite and ObjectStore.exists(path):
        raise FileExistsError(errno.EEXIST, "Exists, and overwrite is false", os.fsdecode(path))
