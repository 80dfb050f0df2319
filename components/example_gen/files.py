"""Opening and listing sources: local paths directly, others through TFX's file systems."""

from __future__ import annotations

import os
from typing import IO, Any, cast


def is_remote(path: str) -> bool:
    """Whether the path names a file system, such as ``gs://bucket/folder``."""
    return "://" in path


def _fileio() -> Any:
    # Imports TensorFlow, which local sources can do without.
    from tfx.dsl.io import fileio

    from stagecraft.components import object_store

    object_store.register()
    return fileio


def is_folder(path: str) -> bool:
    """Whether there is a folder."""
    return bool(_fileio().isdir(path)) if is_remote(path) else os.path.isdir(path)


def exists(path: str) -> bool:
    """Whether there is a file or a folder."""
    return bool(_fileio().exists(path)) if is_remote(path) else os.path.exists(path)


def names(folder: str) -> list[str]:
    """Names of what lies in the folder, sorted; sub-folders without a trailing slash."""
    listed = _fileio().listdir(folder) if is_remote(folder) else os.listdir(folder)
    return sorted(name.rstrip("/") for name in listed)


def size(path: str) -> int:
    """Bytes of a file."""
    if is_remote(path):
        return int(_fileio().stat(path).length)
    return os.path.getsize(path)


def open_binary(path: str) -> IO[bytes]:
    """Opens for reading bytes."""
    return cast(IO[bytes], _fileio().open(path, "rb") if is_remote(path) else open(path, "rb"))
