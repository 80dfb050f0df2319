"""A folder in place of object stores: it contains objects, and no empty folders."""

from __future__ import annotations

import pathlib
import shutil

from stagecraft.pipeline.kubeflow.entrypoint.addresses import FOLDERS


def knows(address: str) -> bool:
    """Whether the backend has a store for an address."""
    return address.startswith(tuple(FOLDERS))


def below(folder: pathlib.Path, address: str) -> pathlib.Path:
    """The path of an address below a folder: ``LocalPathForURI`` in launcher_v2.go."""
    if not knows(address):
        raise ValueError(f"{address}: the backend stores artifacts at {', '.join(FOLDERS)}")
    scheme, separator, path = address.partition("://")
    return folder / FOLDERS[scheme + separator] / path


def transfer(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the files at or below ``source``, if any (``DownloadBlob`` and ``UploadBlob``)."""
    paths = [source] if source.is_file() else sorted(source.rglob("*"))
    for path in paths:
        if path.is_file():
            copy = target / path.relative_to(source) if path != source else target
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
