"""Opens and lists sources: local paths directly, others through TFX's file systems."""

from __future__ import annotations

import glob as globbing
import os
import stat
from typing import IO, Any, cast

from stagecraft.common.errors import UserError

SCHEMES = ("gs", "s3", "minio", "hdfs")
"""Schemes that TFX and :mod:`stagecraft.components.object_store.filesystem` read.

TFX passes hdfs to TensorFlow. This project is untested with hdfs.
"""


def check_scheme(path: str) -> None:
    """Refuses an address that no file system reads, such as an http address."""
    scheme, separator, _ = path.partition("://")
    if separator and scheme not in SCHEMES:
        raise UserError(
            f"{scheme}:// URIs are not supported. Download the data and use its path, or use a "
            "gs://, s3:// or minio:// URI.",
            value=path,
            suggestion="gs://, s3:// or minio://",
        )


def check_regular(path: str) -> None:
    """Refuses a local pipe, socket or device: reading one may never end."""
    if not is_remote(path) and os.path.exists(path):
        _refuse_special(path, os.stat(path).st_mode)


def is_remote(path: str) -> bool:
    """Whether the path names a file system, such as ``gs://bucket/folder``."""
    return "://" in path


def _fileio() -> Any:
    # Imports TensorFlow, which local sources do not need.
    from tfx.dsl.io import fileio

    from stagecraft.components.object_store import filesystem

    filesystem.register()
    return fileio


def is_folder(path: str) -> bool:
    """Whether the path is a folder."""
    return bool(_fileio().isdir(path)) if is_remote(path) else os.path.isdir(path)


def exists(path: str) -> bool:
    """Whether the path is a file or a folder."""
    return bool(_fileio().exists(path)) if is_remote(path) else os.path.exists(path)


def names(folder: str) -> list[str]:
    """Names of the folder's entries, sorted; folders without a trailing slash."""
    listed = _fileio().listdir(folder) if is_remote(folder) else os.listdir(folder)
    return sorted(name.rstrip("/") for name in listed)


def glob(pattern: str) -> list[str]:
    """Paths of the files and folders that a pattern with ``*`` and ``?`` matches, sorted."""
    found = _fileio().glob(pattern) if is_remote(pattern) else globbing.glob(pattern)
    return sorted(path.rstrip("/") for path in found)


def modified(path: str) -> int:
    """Nanoseconds since 1970 at which a file was written last."""
    if is_remote(path):
        return int(_fileio().stat(path).mtime_nsec)
    return os.stat(path).st_mtime_ns


def size(path: str) -> int:
    """Bytes of a file."""
    if is_remote(path):
        return int(_fileio().stat(path).length)
    return os.path.getsize(path)


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading bytes."""
    if is_remote(path):
        return cast(IO[bytes], _fileio().open(path, "rb"))
    return open(path, "rb", opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    check_regular(path)  # opening a socket fails with another error
    # Without O_NONBLOCK, opening a pipe waits for its writer. Regular files ignore the flag.
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        _refuse_special(path, os.fstat(descriptor).st_mode)
    except UserError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_special(path: str, mode: int) -> None:
    for is_kind, kind in _SPECIAL.items():
        if is_kind(mode):
            raise UserError(
                f"{path}: is a {kind}; reading it may never end. Write the data to a file and "
                "use its path.",
                file=path,
                value=kind,
            )


_SPECIAL = {
    stat.S_ISFIFO: "named pipe",
    stat.S_ISSOCK: "socket",
    stat.S_ISCHR: "device",
    stat.S_ISBLK: "device",
}
