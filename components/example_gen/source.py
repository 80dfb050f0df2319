"""Where the pictures come from, and the fingerprint that says whether they are still the same."""

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
"""The execution properties that say where the content is. For TFX's cache the driver puts
the content's fingerprint in their place: the same data elsewhere is the same data."""


class Source(NamedTuple):
    """A source whose files are on hand."""

    dataset: str
    path: str
    """Of an archive or a folder; ``sample`` for the generated sample."""

    train: int
    """Pictures in the sample's train part."""

    test: int

    @property
    def is_sample(self) -> bool:
        """Whether it is generated."""
        return self.path == SAMPLE

    def fingerprint(self) -> str:
        """SHA-256 of the content: an archive's bytes, a folder's names and bytes.

        For the sample, of its sizes; its code is in the cache key anyway.

        Raises:
          UserError: a file cannot be read.
        """
        if self.is_sample:
            return hashlib.sha256(f"{SAMPLE} {self.train} {self.test}".encode()).hexdigest()
        try:
            if not files.is_folder(self.path):
                return _sha256(self.path)
            folder, names = archive.batch_files(self.path)
            contents = [f"{name} {_sha256(posixpath.join(folder, name))}\n" for name in names]
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}.") from None
        return hashlib.sha256("".join(contents).encode()).hexdigest()

    def blocks(self, progress: Progress) -> Iterator[Block]:
        """Yields every picture, checked. See :func:`archive.read`."""
        if self.is_sample:
            return sample.blocks(self.train, self.test)
        return archive.read(self.path, self.dataset, progress)


def resolve(properties: Mapping[str, Any]) -> Source:
    """Finds the source that execution properties ask for, downloading it if they say so.

    Raises:
      UserError: there is nothing there, the address holds credentials, or the download fails.
    """
    path = str(properties["source"])
    secrets.refuse_in_address(path, Settings.credentials_advice)  # a run's parameter, as well
    dataset = str(properties["dataset"])
    if path == DOWNLOAD:
        path = download.fetch(download.PUBLISHED[dataset], str(properties["cache_dir"]))
    elif path != SAMPLE:
        files.check_scheme(path)
        path = path if files.is_remote(path) else os.path.expanduser(path)
        if not files.exists(path):
            raise UserError(
                f"{path}: no such file or folder. Give the path of an archive (.tar.gz) or of a "
                f"folder with its files, or one of the words {SAMPLE} and {DOWNLOAD}."
            )
    # Kubeflow hands numbers over as doubles.
    return Source(dataset, path, int(properties["sample_train"]), int(properties["sample_test"]))


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with files.open_binary(path) as stream:
        left = files.size(path)  # no more than that: somebody may be writing faster than we read
        while chunk := stream.read(min(1 << 20, left)):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
