"""Object stores for TFX: ``s3://`` and ``minio://`` addresses, which TensorFlow cannot read.

After :func:`register`, everything that goes through ``tfx.dsl.io.fileio`` takes them: TFX's
Pusher, ``io_utils.copy_dir``, our ExampleGen. TensorFlow's own operations (``tf.data``, loading a
SavedModel) do not.

An object store knows no folders, only names with slashes in them. So nothing makes an empty
folder, a folder is gone with its last file, and renaming one is a copy of each file, not atomic.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
import posixpath
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tfx.dsl.io import filesystem, filesystem_registry

from stagecraft.components.object_store.endpoint import STORE, explained
from stagecraft.components.object_store.location import Place, locate

PathType = str | bytes


class Stat(NamedTuple):
    """What there is to know of a file, under TensorFlow's names (``tf.io.gfile.stat``)."""

    length: int
    """Bytes."""

    mtime_nsec: int
    """When it was written, in nanoseconds since 1970; 0 for a folder of an object store."""

    is_directory: bool


class ObjectStore(filesystem.Filesystem):
    """TFX's file system over fsspec. A missing file raises TFX's NotFoundError.

    A store that cannot be reached, or refuses the credentials, is a UserError.
    """

    SUPPORTED_SCHEMES = ["s3://", "minio://"]

    @staticmethod
    def open(name: PathType, mode: str = "r") -> Any:
        """Opens a file, for text (UTF-8) unless the mode has a ``b``.

        What is written is there when the file is closed.
        """
        stream = locate(name).open(mode.strip("bt") + "b")
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding="utf-8")

    @staticmethod
    def copy(src: PathType, dst: PathType, overwrite: bool = False) -> None:
        """Copies a file, within the store where both ends are in the same one."""
        _refuse_existing(dst, overwrite)
        locate(src).copy_to(locate(dst))

    @staticmethod
    def exists(path: PathType) -> bool:
        """Whether there is a file or a folder."""
        try:
            locate(path).info()
        except filesystem.NotFoundError:
            return False
        return True

    @staticmethod
    def glob(pattern: PathType) -> list[str]:
        """Addresses that match, sorted; ``*`` stops at a slash."""
        place = locate(pattern)
        within = place.path[len(place.root) :]
        with explained(place.uri):
            found = place.store.glob(glob.escape(place.root) + within)
        return sorted({place.uri_of(path.rstrip("/")) for path in found})

    @staticmethod
    def isdir(path: PathType) -> bool:
        """Whether there is a folder: something whose name goes on after the path and a slash."""
        try:
            return locate(path).is_folder()
        except filesystem.NotFoundError:
            return False

    @staticmethod
    def listdir(path: PathType) -> list[str]:
        """Names of what lies in a folder, sorted; none ends with a slash."""
        return sorted(locate(path).entries())

    @staticmethod
    def makedirs(path: PathType) -> None:
        """Does nothing: a folder begins with its first file."""
        locate(path)

    @staticmethod
    def mkdir(path: PathType) -> None:
        """Does nothing, as :meth:`makedirs`."""
        locate(path)

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
        """Removes a folder and all in it; a bucket stays, empty."""
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
        """Yields address, names of folders and names of files, as ``os.walk`` does.

        A store that fails is no empty folder: that raises.
        """
        folder = os.fsdecode(top)
        try:
            entries = locate(folder).entries()
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        folders = sorted(name for name, is_folder in entries.items() if is_folder)
        files = sorted(name for name, is_folder in entries.items() if not is_folder)
        if topdown:
            yield folder, folders, files
        for name in folders:
            yield from ObjectStore.walk(posixpath.join(folder, name), topdown, onerror)
        if not topdown:
            yield folder, folders, files


class FolderStore(ObjectStore):
    """All stores out of STAGECRAFT_STORE's folder; TensorFlow's ``gs://`` too."""

    SUPPORTED_SCHEMES = ["gs://", "s3://", "minio://"]


def register() -> None:
    """Makes ``tfx.dsl.io.fileio`` take these addresses; doing it again changes nothing.

    Where STAGECRAFT_STORE is set, its folder serves them all, ``gs://`` included.
    """
    # TFX's plugin for TensorFlow claims gs:// and s3:// too, with 10; lower wins.
    filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(
        FolderStore if os.environ.get(STORE) else ObjectStore, priority=0
    )


def write_atomically(uri: str, content: bytes) -> None:
    """Writes a small file so that readers see the old content or the new one, whole.

    Args:
      uri: a local path, or an address in an object store, :func:`register` called or not.
      content: all of it; one request carries it.
    """
    place = _place(uri)
    if place is not None and not place.root:
        with explained(uri):
            place.store.pipe_file(place.path, content)
    elif place is not None or "://" not in uri:
        _replace(place.path if place is not None else uri, content)
    else:
        # gs:// through TensorFlow: the object is there when its upload has ended.
        with _fileio().open(uri, "wb") as stream:
            stream.write(content)


def read(uri: str) -> bytes | None:
    """Content of a small file, as one write left it; None where there is none."""
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


def _place(uri: str) -> Place | None:
    """None where TensorFlow or the operating system reads the address."""
    store = FolderStore if os.environ.get(STORE) else ObjectStore
    return locate(uri) if uri.startswith(tuple(store.SUPPORTED_SCHEMES)) else None


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
