"""Finds the source of the images, and computes a fingerprint of its content."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stagecraft.components.example_gen.archives import archive, download, files, sample
from stagecraft.components.example_gen.archives.archive import Block, Progress
from stagecraft.schemas import secrets
from stagecraft.schemas.base_settings import Settings
from stagecraft.schemas.errors import UserError

SAMPLE, DOWNLOAD = "sample", "download"

PROPERTIES = ("source", "cache_dir", "sample_train", "sample_test")
"""Execution properties that locate the source. In TFX's cache key, the driver replaces them by the
fingerprint, so that the same data at another path is a cache hit."""


class Source(NamedTuple):
    """A source whose files are available."""

    dataset: str
    path: str  # archive or folder; ``sample`` for the generated sample
    train: int
    test: int

    @property
    def is_sample(self) -> bool:
        """Whether it is generated."""
        return self.path == SAMPLE

    def fingerprint(self) -> str:
        """SHA-256 of the content: an archive's bytes, a folder's names and bytes.

        For the sample: of its sizes. Its code is in the cache key anyway.
        """
        if self.is_sample:
            return hashlib.sha256(f"{SAMPLE} {self.train} {self.test}".encode()).hexdigest()
        try:
            if not files.is_folder(self.path):
                return _sha256(self.path)
            folder, names = archive.batch_files(self.path)
            contents = [f"{name} {_sha256(posixpath.join(folder, name))}\n" for name in names]
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be read: {error.strerror or error}.", file=self.path
            ) from None
        return hashlib.sha256("".join(contents).encode()).hexdigest()

    def blocks(self, progress: Progress) -> Iterator[Block]:
        """Yields every image, checked. See :func:`archive.read`."""
        if self.is_sample:
            return sample.blocks(self.train, self.test)
        return archive.read(self.path, self.dataset, progress)


def resolve(properties: Mapping[str, Any]) -> Source:
    """Finds the source in execution properties, and downloads it if necessary."""
    path = str(properties["source"])
    secrets.refuse_in_address(path, Settings.credentials_advice)  # also from a runtime parameter
    dataset = str(properties["dataset"])
    if path == DOWNLOAD:
        path = download.fetch(download.PUBLISHED[dataset], str(properties["cache_dir"]))
    elif path != SAMPLE:
        files.check_scheme(path)
        path = path if files.is_remote(path) else os.path.expanduser(path)
        if not files.exists(path):
            raise UserError(
                f"{path}: no such file or folder. Use the path of an archive (.tar.gz), the "
                f"path of its extracted folder, {SAMPLE!r}, or {DOWNLOAD!r}.",
                setting="source",
                value=path,
                file=path,
            )
    # Kubeflow passes numbers as doubles.
    return Source(dataset, path, int(properties["sample_train"]), int(properties["sample_test"]))


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with files.open_binary(path) as stream:
        left = files.size(path)  # a limit, because another program may be appending
        while chunk := stream.read(min(1 << 20, left)):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
