"""Finds the source of the images, computes a fingerprint of its content, and stages the content.

An archive can only be read from its start. A staged file has records of 3,073 bytes (label, then
planes), so that each Beam worker can seek to its slice. Imports TensorFlow and TFX only to stage.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stagecraft.common import secrets
from stagecraft.common.errors import UserError
from stagecraft.common.settings import Settings
from stagecraft.components.example_gen import content, splits
from stagecraft.components.example_gen.archives import archive, download, files, sample
from stagecraft.components.example_gen.archives.archive import Block
from stagecraft.components.example_gen.archives.layouts import PLANES, TEST, TRAIN
from stagecraft.components.example_gen.archives.progress import Progress
from stagecraft.components.example_gen.archives.records import BLOCK, Labels, Planes
from stagecraft.components.example_gen.content import Content
from stagecraft.schemas import features

SAMPLE, DOWNLOAD = "sample", "download"

PROPERTIES = ("source", "cache_dir", "sample_train", "sample_test")
"""Execution properties that locate the source. In TFX's cache key, the driver replaces them by the
fingerprint, so that the same data at another path is a cache hit."""

_RECORD = 1 + PLANES


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
        return stage(self.blocks(progress), folder)

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
        file = str(error.filename or path)
        raise UserError(f"{file}: cannot be read: {error.strerror or error}.", file=file) from None


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


class _Part(NamedTuple):
    path: str
    records: int


@dataclasses.dataclass(frozen=True)
class StagedRecords(Content):
    """The staged files. In the data set's own order, train parts precede test parts."""

    train: tuple[_Part, ...]
    test: tuple[_Part, ...]

    @property
    def n_train(self) -> int:
        """Records of the train part."""
        return sum(part.records for part in self.train)

    @property
    def n_test(self) -> int:
        """Records of the test part."""
        return sum(part.records for part in self.test)

    def split_ids(self, val_fraction: float) -> dict[str, splits.Ids]:
        """``val`` is held out of the train part; ``eval`` is the test part."""
        return splits.split_ids(self.n_train, self.n_test, val_fraction)

    def examples(self, ids: splits.Ids) -> Iterator[bytes]:
        """Reads blocks of records."""
        for first in range(int(ids[0]), int(ids[-1]) + 1, BLOCK) if len(ids) else ():
            count = min(BLOCK, int(ids[-1]) + 1 - first)
            mine = ids[(ids >= first) & (ids < first + count)]
            records = self.read(first, count)[mine - first]
            yield from serialize(records[:, 0], records[:, 1:], mine)

    def read(self, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Records ``first … first + count - 1`` of the data set, uint8 ``[count, 3073]``."""
        rows = np.empty((count, _RECORD), np.uint8)
        filled, start = 0, 0
        for path, records in self.train + self.test:
            skip = max(first - start, 0)
            wanted = min(start + records, first + count) - (start + skip)
            if wanted > 0:
                with files.open_binary(path) as stream:
                    stream.seek(skip * _RECORD)
                    data = stream.read(wanted * _RECORD)
                rows[filled : filled + wanted] = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
                filled += wanted
            start += records
        return rows


def stage(blocks: Iterable[Block], folder: str) -> StagedRecords:
    """Writes blocks to record files in a new folder, on any file system that TFX knows."""
    from tfx.dsl.io import fileio

    fileio.makedirs(folder)
    counts: dict[tuple[str, int], int] = {}
    for key, group in itertools.groupby(blocks, lambda block: (block.part, block.batch)):
        counts[key] = 0
        with fileio.open(_path(folder, *key), "wb") as stream:
            for block in group:
                rows = np.empty((len(block.labels), _RECORD), np.uint8)
                rows[:, 0], rows[:, 1:] = block.labels, block.planes
                stream.write(rows.tobytes())
                counts[key] += len(rows)

    def parts(wanted: str) -> tuple[_Part, ...]:
        keys = sorted(key for key in counts if key[0] == wanted)
        return tuple(_Part(_path(folder, *key), counts[key]) for key in keys)

    return StagedRecords(parts(TRAIN), parts(TEST))


def _path(folder: str, part: str, batch: int) -> str:
    return posixpath.join(folder, f"{part}-{batch:05d}")


def serialize(labels: Labels, planes: Planes, ids: splits.Ids) -> Iterator[bytes]:
    """Yields images, uint8 planes ``[n, 3072]``, as tf.Examples with features in order of name."""
    import tensorflow as tf

    # Reusing one Example takes half the time of building new ones.
    example = tf.train.Example()
    feature = example.features.feature
    image = feature[features.IMAGE].bytes_list.value
    label = feature[features.LABEL].int64_list.value
    example_id = feature[features.ID].int64_list.value
    image.append(b"")
    label.append(0)
    example_id.append(0)
    values = zip(_interleave(planes), labels.tolist(), ids.tolist(), strict=True)
    for image[0], label[0], example_id[0] in values:
        yield example.SerializeToString(deterministic=True)


def _interleave(planes: Planes) -> Iterator[bytes]:
    n, pixels, channels = len(planes), PLANES, features.IMAGE_SHAPE[-1]
    hwc = np.empty((n, pixels // channels, channels), np.uint8)
    for channel, plane in enumerate(np.split(planes, channels, axis=1)):
        hwc[:, :, channel] = plane  # three times as fast as a transpose
    data = hwc.tobytes()
    for start in range(0, n * pixels, pixels):
        yield data[start : start + pixels]
