"""Files that the Trainer's step and the job's pods share, on a volume or in a store."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping

from stagecraft.common.errors import UserError
from stagecraft.components.object_store import filesystem
from stagecraft.components.object_store.folder import StoredFolder, is_address


def at(path: str) -> StoredFolder | VolumeFolder:
    """Opens the folder at a path of a volume, or at an address."""
    return StoredFolder(path) if is_address(path) else VolumeFolder(path)


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


def is_below(path: str, folder: str) -> bool:
    """Whether a path is the folder, or below it."""
    return pathlib.PurePath(os.path.normpath(path)).is_relative_to(folder)


def copy_once(sources: Mapping[str, str], folder: pathlib.Path) -> None:
    """Copies sources, by name in ``folder``, to a volume, unless an earlier attempt has done so."""
    with writable(folder):
        for name, source in sources.items():
            target = folder / name
            if not target.exists():
                unfinished = target.with_name(f".{target.name}.{os.getpid()}")
                shutil.rmtree(unfinished, ignore_errors=True)
                shutil.copytree(source, unfinished)
                unfinished.rename(target)


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
