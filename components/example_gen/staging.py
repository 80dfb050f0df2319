"""Stages a CIFAR data set as plain record files, so that each Beam worker can read a slice.

An archive can only be read from its start. A staged file has records of 3,073 bytes (label, then
planes), so that a worker can seek to its slice.
"""

from __future__ import annotations

import dataclasses
import itertools
import posixpath
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tfx.dsl.io import fileio

from stagecraft.components.example_gen import splits
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.archives.archive import Block
from stagecraft.components.example_gen.archives.layouts import PLANES, TEST, TRAIN
from stagecraft.components.example_gen.archives.records import BLOCK, Labels, Planes
from stagecraft.components.example_gen.content import Content
from stagecraft.schemas import features

RECORD = 1 + PLANES


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
        rows = np.empty((count, RECORD), np.uint8)
        filled, start = 0, 0
        for path, records in self.train + self.test:
            skip = max(first - start, 0)
            wanted = min(start + records, first + count) - (start + skip)
            if wanted > 0:
                with files.open_binary(path) as stream:
                    stream.seek(skip * RECORD)
                    data = stream.read(wanted * RECORD)
                rows[filled : filled + wanted] = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
                filled += wanted
            start += records
        return rows


def stage(blocks: Iterable[Block], folder: str) -> StagedRecords:
    """Writes blocks to record files in a new folder, on any file system that TFX knows."""
    fileio.makedirs(folder)
    counts: dict[tuple[str, int], int] = {}
    for key, group in itertools.groupby(blocks, lambda block: (block.part, block.batch)):
        counts[key] = 0
        with fileio.open(_path(folder, *key), "wb") as stream:
            for block in group:
                rows = np.empty((len(block.labels), RECORD), np.uint8)
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
