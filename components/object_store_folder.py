"""A folder of an object store, for those who work in folders of a disk."""

from __future__ import annotations

import errno
import logging
import os
import pathlib
import posixpath
import shutil
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tfx.dsl.io.filesystem import NotFoundError

from stagecraft.components import object_store
from stagecraft.schemas.errors import UserError

ADDRESSES = ("s3://", "minio://", "gs://")

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds between attempts; each of them is several of the store's own client."""

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


def is_address(path: str) -> bool:
    """Whether it is that of an object store."""
    return path.startswith(ADDRESSES)


class StoredFolder:
    """Files below an address, by their names relative to it.

    Once the store has answered, it may fail for a minute before that is an error.
    """

    def __init__(self, address: str, sleep: Callable[[float], Any] = time.sleep):
        """Nothing is asked yet."""
        from tfx.dsl.io import fileio  # imports TensorFlow

        object_store.register()
        self._files: Any = fileio
        self.address = address.rstrip("/")
        self._sleep = sleep
        self._answered = False

    def names(self) -> list[str]:
        """Of all files, at any depth."""

        def walk() -> list[str]:
            return sorted(
                posixpath.relpath(posixpath.join(parent, name), self.address)
                for parent, _, names in self._files.walk(self.address)
                for name in names
            )

        return self._patiently(walk)

    def read(self, name: str) -> bytes | None:
        """Content of a small file; None where there is none."""
        return self._patiently(lambda: object_store.read(self._of(name)))

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file, whole or not at all."""
        self._patiently(lambda: object_store.write_atomically(self._of(name), content))

    def download(self, name: str, path: pathlib.Path) -> None:
        """Copies a file from there.

        Raises:
            FileNotFoundError: it is not there.
        """

        def copy() -> None:
            with self._files.open(self._of(name), "rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._patiently(copy)
        except NotFoundError:
            raise FileNotFoundError(errno.ENOENT, "No such object", self._of(name)) from None

    def upload(self, path: pathlib.Path, name: str) -> None:
        """Copies a file to there; whoever reads sees all of it or none."""

        def copy() -> None:
            with path.open("rb") as source, self._files.open(self._of(name), "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

        self._patiently(copy)

    def remove(self, name: str) -> None:
        """Removes a file; one that is gone is gone."""

        def remove() -> None:
            if self._files.exists(self._of(name)):
                self._files.remove(self._of(name))

        self._patiently(remove)

    def clear(self) -> None:
        """Removes all files."""
        for name in self.names():
            self.remove(name)

    def download_all(self, below: str, folder: pathlib.Path) -> None:
        """Copies all files of the folder ``below`` from there into a local one."""
        for name in self.names():
            if name.startswith(f"{below}/"):
                self.download(name, folder / posixpath.relpath(name, below))

    def upload_all(self, folder: pathlib.Path, below: str) -> None:
        """Copies all files of a local folder to the folder ``below`` there."""
        for path in files(folder):
            self.upload(path, posixpath.join(below, path.relative_to(folder).as_posix()))

    def _of(self, name: str) -> str:
        return f"{self.address}/{name}"

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        for pause in _PAUSES if self._answered else ():
            try:
                return ask()
            except UserError as error:
                _log.warning("%s Trying again.", error)
            self._sleep(pause)
        answer = ask()
        self._answered = True
        return answer


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    """All files of a local folder, at any depth, through links of folders too."""
    return sorted(
        pathlib.Path(parent, name)
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
    )
