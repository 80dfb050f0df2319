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
    """Copies the files at or below ``source``, ``DownloadBlob`` and ``UploadBlob``.

    A missing source is no error.
    """
    if source.is_dir():
        for path in sorted(source.iterdir()):
            if path.is_dir() and not path.is_symlink():
                transfer(path, target / path.name)
            elif path.exists():
                _copy(path, target / path.name)
    elif source.exists():
        _copy(source, target)


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Raises IsADirectoryError for a link to a folder, which the backend opens as a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
