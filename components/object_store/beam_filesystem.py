"""``minio://`` addresses for Apache Beam, which supports gs:// and s3://.

TFX's file-based ExampleGens read their input through Beam. Importing this module registers the
file system: Beam looks at all subclasses of its FileSystem.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from apache_beam.io.filesystem import (
    BeamIOError,
    CompressedFile,
    CompressionTypes,
    FileMetadata,
    FileSystem,
)

from stagecraft.components.object_store.filesystem import ObjectStore


class MinioFileSystem(FileSystem):
    """Beam's file system over :class:`ObjectStore`."""

    @classmethod
    def scheme(cls) -> str:
        """The scheme of the addresses that it serves."""
        return "minio"

    def join(self, basepath: str, *paths: str) -> str:
        """Joins parts of an address."""
        return posixpath.join(basepath, *(path.lstrip("/") for path in paths))

    def split(self, path: str) -> tuple[str, str]:
        """The folder of an address, and the name in the folder."""
        return posixpath.split(path)

    def mkdirs(self, path: str) -> None:
        """Does nothing: an object store has no folders."""

    def has_dirs(self) -> bool:
        """False: addresses are prefixes."""
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        folder = dir_or_prefix if dir_or_prefix.endswith("/") else posixpath.dirname(dir_or_prefix)
        if not ObjectStore.exists(folder.rstrip("/")):
            return
        for parent, _, names in ObjectStore.walk(folder.rstrip("/")):
            for name in names:
                address = posixpath.join(str(parent), str(name))
                if address.startswith(dir_or_prefix):
                    yield self.metadata(address)

    def create(
        self,
        path: str,
        mime_type: str = "application/octet-stream",
        compression_type: str = CompressionTypes.AUTO,
    ) -> Any:
        """Opens a file for writing bytes."""
        return _compressed(ObjectStore.open(path, "wb"), path, compression_type)

    def open(
        self,
        path: str,
        mime_type: str = "application/octet-stream",
        compression_type: str = CompressionTypes.AUTO,
    ) -> Any:
        """Opens a file for reading bytes."""
        return _compressed(ObjectStore.open(path, "rb"), path, compression_type)

    def copy(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        """Copies files, and replaces existing ones."""
        for source, target in zip(source_file_names, destination_file_names, strict=True):
            ObjectStore.copy(source, target, overwrite=True)

    def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        """Moves files, and replaces existing ones."""
        for source, target in zip(source_file_names, destination_file_names, strict=True):
            ObjectStore.rename(source, target, overwrite=True)

    def exists(self, path: str) -> bool:
        """Whether a file exists, or a name with this prefix."""
        return ObjectStore.exists(path)

    def size(self, path: str) -> int:
        """Size of a file in bytes."""
        return int(self.metadata(path).size_in_bytes)

    def last_updated(self, path: str) -> float:
        """Time of the last write, in seconds since 1970."""
        return float(self.metadata(path).last_updated_in_seconds)

    def metadata(self, path: str) -> FileMetadata:
        """Address, size and time of a file."""
        try:
            found = ObjectStore.stat(path)
        except OSError as error:
            raise BeamIOError(f"{path}: {error}", {path: error}) from error
        return FileMetadata(path, found.length, found.mtime_nsec / 1e9)

    def delete(self, paths: list[str]) -> None:
        """Removes files, and folders with their content."""
        for path in paths:
            if ObjectStore.isdir(path):
                ObjectStore.rmtree(path)
            else:
                ObjectStore.remove(path)


def _compressed(file: Any, path: str, compression_type: str) -> Any:
    if compression_type == CompressionTypes.AUTO:
        compression_type = CompressionTypes.detect_compression_type(path)
    if compression_type == CompressionTypes.UNCOMPRESSED:
        return file
    return CompressedFile(file, compression_type=compression_type)
