"""Folders that machines share, in an object store or on a volume: files as a whole."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pathlib
import posixpath
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tfx.dsl.io.filesystem import NotFoundError

from stagecraft.common.errors import TransientError, UserError
from stagecraft.components.object_store import filesystem
from stagecraft.components.object_store.location import NoBucketError

ADDRESSES = ("s3://", "minio://", "gs://")

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds between attempts; the store's client makes several tries per attempt."""

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


def is_address(path: str) -> bool:
    """Whether a path is an address in an object store."""
    return path.startswith(ADDRESSES)


def patiently(ask: Callable[[], Answer], sleep: Callable[[float], Any] = time.sleep) -> Answer:
    """The store's answer; retries for a minute while the store fails (TransientError)."""
    for pause in _PAUSES:
        try:
            return ask()
        except TransientError as error:
            _log.warning("%s Trying again.", error)
        sleep(pause)
    return ask()


def open_folder(path: str) -> StoredFolder | VolumeFolder:
    """Opens the folder at an address, or at a path of a volume."""
    return StoredFolder(path) if is_address(path) else VolumeFolder(path)


class StoredFolder:
    """Files below an address, by their relative names.

    Retries for a minute before it raises a TransientError. A missing file is a FileNotFoundError.
    """

    def __init__(self, address: str, sleep: Callable[[float], Any] = time.sleep):
        from tfx.dsl.io import fileio  # imports TensorFlow

        filesystem.register()
        self._files: Any = fileio
        self.address = address.rstrip("/")
        self._sleep = sleep

    def names(self) -> list[str]:
        """Names of all files, at any depth."""
        return self._patiently(
            lambda: sorted(
                posixpath.relpath(posixpath.join(parent, name), self.address)
                for parent, _, names in self._files.walk(self.address)
                for name in names
            )
        )

    def read(self, name: str) -> bytes | None:
        """Content of a small file; None: it does not exist."""
        return self._patiently(lambda: filesystem.read(self._of(name)))

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file atomically."""
        self._send(lambda: filesystem.write_atomically(self._of(name), content))

    def download(self, name: str, path: pathlib.Path) -> None:
        """Downloads a file; FileNotFoundError if it does not exist."""

        def copy() -> None:
            with self._files.open(self._of(name), "rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

        path.parent.mkdir(parents=True, exist_ok=True)
        self._patiently(copy)

    def upload(self, path: pathlib.Path, name: str) -> None:
        """Uploads a file; readers see all of it or none."""
        self._send(lambda: filesystem.upload(str(path), self._of(name)))

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""

        def remove() -> None:
            if self._files.exists(self._of(name)):
                self._files.remove(self._of(name))

        self._patiently(remove)

    def clear(self, last: str = "") -> None:
        """Removes all files; the one called ``last`` after the others."""
        for name in sorted(self.names(), key=lambda name: name == last):
            self.remove(name)

    def folders_with(self, name: str) -> list[str]:
        """Subfolders that contain a file of this name."""
        paths = map(pathlib.PurePosixPath, self.names())
        return [path.parent.name for path in paths if path.name == name and len(path.parts) == 2]

    def download_all(self, below: str, folder: pathlib.Path) -> None:
        """Downloads all files of the subfolder ``below`` into a local folder."""
        for name in self.names():
            if name.startswith(f"{below}/"):
                self.download(name, folder / posixpath.relpath(name, below))

    def upload_all(self, folder: pathlib.Path, below: str) -> None:
        """Uploads all files of a local folder into the subfolder ``below``."""
        for path in files(folder):
            self.upload(path, posixpath.join(below, path.relative_to(folder).as_posix()))

    def _of(self, name: str) -> str:
        return f"{self.address}/{name}"

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        return patiently(lambda: self._ask(ask), self._sleep)

    def _ask(self, ask: Callable[[], Answer]) -> Answer:
        """Maps TensorFlow's and TFX's errors to the same types."""
        import tensorflow as tf  # reads gs://

        try:
            return ask()
        except (NotFoundError, tf.errors.NotFoundError) as error:
            name = getattr(error, "filename", None) or self.address
            raise FileNotFoundError(errno.ENOENT, "No such object or bucket", name) from None
        except tf.errors.OpError as error:
            refused = (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError)
            kind = UserError if isinstance(error, refused) else TransientError
            raise kind(
                f"{self.address} cannot be used: {error.message}.", file=self.address
            ) from None

    def _send(self, send: Callable[[], None]) -> None:
        """Calls ``send`` by :meth:`_patiently`; only the bucket can be missing."""
        try:
            self._patiently(send)
        except FileNotFoundError:
            raise NoBucketError(self.address) from None


class VolumeFolder:
    """The operations of :class:`StoredFolder` on a volume that several machines mount."""

    def __init__(self, path: str):
        self._path = pathlib.Path(path)

    def read(self, name: str) -> bytes | None:
        """Content of a small file; None: it does not exist."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file atomically; other machines may write it at the same time."""
        with writable(self._path):
            filesystem.write_atomically(str(self._path / name), content)

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        (self._path / name).unlink(missing_ok=True)

    def clear(self, last: str = "") -> None:
        """Removes all files that it can, and the file ``last`` after the others."""
        for entry in self._path.glob("*/"):
            shutil.rmtree(entry, ignore_errors=True)
        for entry in sorted(self._path.glob("*"), key=lambda entry: entry.name == last):
            with contextlib.suppress(OSError):
                entry.unlink()
        with contextlib.suppress(OSError):
            self._path.rmdir()

    def folders_with(self, name: str) -> list[str]:
        """Subfolders that contain a file of this name."""
        return sorted(file.parent.name for file in self._path.glob(f"*/{name}"))


@contextlib.contextmanager
def writable(folder: pathlib.Path) -> Iterator[None]:
    """Turns OSErrors of the block into a UserError."""
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


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    """All files of a local folder, at any depth, also through links to folders."""
    return sorted(
        pathlib.Path(parent, name)
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
    )
