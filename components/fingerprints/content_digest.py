"""Digests of files and folders: artifacts and weights are identified by content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

_BLOCK = 1 << 20


def file_digest(path: str) -> str:
    """SHA-256 of a file's content, 64 hexadecimal digits; ``path`` may be an address."""
    digest = hashlib.sha256()
    with _open(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def folder_digest(folder: str) -> str:
    """SHA-256 of all files below ``folder``: relative paths and contents."""
    from tfx.dsl.io import fileio  # imports TensorFlow

    paths = [
        os.path.join(parent, name) for parent, _, names in fileio.walk(folder) for name in names
    ]
    return _of_files(sorted(paths), folder)


def files_digest(paths: Iterable[str]) -> str:
    """SHA-256 of local files: their contents, and their paths relative to each other."""
    ordered = sorted(paths)
    parent = os.path.commonpath([os.path.dirname(path) for path in ordered])
    return _of_files(ordered, parent)


def _of_files(paths: list[str], folder: str) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{os.path.relpath(path, folder)} {file_digest(path)}\n".encode())
    return digest.hexdigest()


def _open(path: str) -> Any:
    if "://" not in path:
        return open(path, "rb")
    from tfx.dsl.io import fileio  # imports TensorFlow

    return fileio.open(path, "rb")
