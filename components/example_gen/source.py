"""Finds the source of the images, and computes a fingerprint of its content."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stagecraft.common import secrets
from stagecraft.common.errors import UserError
from stagecraft.common.settings import Settings
from stagecraft.components.example_gen import content
from stagecraft.components.example_gen.archives import archive, download, files, sample
from stagecraft.components.example_gen.archives.archive import Block, Progress
from stagecraft.components.example_gen.content import Content

SAMPLE, DOWNLOAD = "sample", "download"

PROPERTIES = ("source", "cache_dir", "sample_train", "sample_test")
"""Execution properties that locate the source. In TFX's cache key, the driver replaces them by the
fingerprint, so that the same data at another path is a cache hit."""


@dataclasses.dataclass(frozen=True)
class Source(content.Source):
    """A CIFAR archive, or the generated sample."""

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
        with readable(self.path):
            if not files.is_folder(self.path):
                return sha256(self.path)
            folder, names = archive.batch_files(self.path)
            return sha256_of(folder, names)

    def content(self, folder: str, progress: Progress) -> Content:
        """Stages the records."""
        from stagecraft.components.example_gen import staging  # with TensorFlow

        return staging.stage(self.blocks(progress), folder)

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
        path = existing(
            path,
            "Use the path of an archive (.tar.gz), the path of its extracted folder, "
            f"{SAMPLE!r}, or {DOWNLOAD!r}.",
        )
    # Kubeflow passes numbers as doubles.
    return Source(dataset, path, int(properties["sample_train"]), int(properties["sample_test"]))


def existing(path: str, advice: str) -> str:
    """The path of a file or folder that exists, on any file system."""
    files.check_scheme(path)
    path = path if files.is_remote(path) else os.path.expanduser(path)
    if not files.exists(path):
        raise UserError(
            f"{path}: no such file or folder. {advice}", setting="source", value=path, file=path
        )
    return path


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Refuses a source that the block cannot read."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}.", file=path) from None


def sha256_of(folder: str, names: Iterable[str]) -> str:
    """SHA-256 of the names and bytes of a folder's files."""
    contents = [f"{name} {sha256(posixpath.join(folder, name))}\n" for name in names]
    return hashlib.sha256("".join(contents).encode()).hexdigest()


def sha256(path: str) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with files.open_binary(path) as stream:
        left = files.size(path)  # a limit, because another program may be appending
        while chunk := stream.read(min(1 << 20, left)):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
