"""Small files that the Trainer's step and the job's pods share, on a volume or in a store."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from typing import Protocol

from stagecraft.components.kubernetes.job_folder import volume
from stagecraft.components.object_store import filesystem
from stagecraft.components.object_store.folder import StoredFolder, is_address


class SharedFolder(Protocol):
    """A folder on a volume or in a store."""

    def read(self, name: str) -> bytes | None:
        """Content of a small file; None: it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file atomically; other machines may write it at the same time.

        Raises:
            UserError: the file cannot be written.
        """

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""

    def clear(self, last: str = "") -> None:
        """Removes all files; the one called ``last`` after the others."""

    def folders_with(self, name: str) -> list[str]:
        """Subfolders that contain a file of this name."""


def at(path: str) -> SharedFolder:
    """Opens the folder at a path of a volume, or at an address."""
    return StoredFolder(path) if is_address(path) else _VolumeFolder(path)


class _VolumeFolder:
    """A :class:`SharedFolder` on a volume that several machines mount."""

    def __init__(self, path: str):
        self._path = pathlib.Path(path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        with volume.writable(self._path):
            filesystem.write_atomically(str(self._path / name), content)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def clear(self, last: str = "") -> None:
        """See the protocol; keeps files that cannot be removed."""
        for entry in self._path.glob("*/"):
            shutil.rmtree(entry, ignore_errors=True)
        for entry in sorted(self._path.glob("*"), key=lambda entry: entry.name == last):
            with contextlib.suppress(OSError):
                entry.unlink()
        with contextlib.suppress(OSError):
            self._path.rmdir()

    def folders_with(self, name: str) -> list[str]:
        return sorted(file.parent.name for file in self._path.glob(f"*/{name}"))
