"""Addresses in object stores, and the launcher's copies: ``LocalPathForURI``, launcher_v2.go."""

from __future__ import annotations

import os
from typing import Any

from stagecraft.pipeline.kubeflow.spec import map_leaves

ROOT = "STAGECRAFT_LAUNCHER_ROOT"
"""Environment variable: the folder of the launcher's copies. Only the emulated launcher sets it;
in a pod, the folder is ``/``."""

FOLDERS = {"gs://": "gcs", "s3://": "s3", "minio://": "minio"}


def to_local(address: str) -> str:
    """Path of the launcher's copy of an address; returns other paths unchanged."""
    for scheme, folder in FOLDERS.items():
        if address.startswith(scheme):
            return f"{_root()}/{folder}/{address.removeprefix(scheme)}"
    return address


def to_remote(path: str) -> str:
    """The inverse of :func:`to_local`."""
    for scheme, folder in FOLDERS.items():
        if path.startswith(prefix := f"{_root()}/{folder}/"):
            return scheme + path.removeprefix(prefix)
    return path


def in_strings(value: Any, changed: dict[str, str]) -> Any:
    """JSON with addresses in place of local paths; ``changed`` maps more folders to addresses."""

    def restore(leaf: Any) -> Any:
        if not isinstance(leaf, str):
            return leaf
        for folder, address in changed.items():
            if leaf == folder or leaf.startswith(f"{folder}/"):
                return address + leaf.removeprefix(folder)
        return to_remote(leaf)

    return map_leaves(value, restore)


def _root() -> str:
    return os.environ.get(ROOT, "").rstrip("/")
