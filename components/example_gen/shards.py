"""Writes one shard per Beam element, from a slice of the staged records."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow as tf
from tfx.dsl.io import fileio

from stagecraft.components.example_gen import splits
from stagecraft.components.example_gen.archives.records import BLOCK, Labels, Planes
from stagecraft.components.example_gen.staging import Staged
from stagecraft.schemas import features


class Plan(NamedTuple):
    """Input, splits and output of the shards."""

    staged: Staged
    val_fraction: float
    shards: int
    """Files per split."""
    folders: Mapping[str, str]
    """Split -> output folder."""
    scratch: str
    """A folder on the same file system, for unfinished files."""

    def ids(self) -> dict[str, splits.Ids]:
        """The ids of every split."""
        return splits.split_ids(self.staged.n_train, self.staged.n_test, self.val_fraction)

    def elements(self) -> list[tuple[str, int]]:
        """Split and number of every shard."""
        return [(split, shard) for split in splits.SPLITS for shard in range(self.shards)]


class WriteShard(beam.DoFn):
    """Writes the shard that an element ``(split, number)`` names, as an uncompressed TFRecord.

    Memory is a few blocks of records, whatever the size of the shard.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def setup(self) -> None:
        """Computes the splits' ids, which is faster than sending them."""
        self._ids = self._plan.ids()

    def process(self, element: tuple[str, int]) -> None:
        """Writes one shard."""
        split, shard = element
        plan = self._plan
        name = f"data_tfrecord-{shard:05d}-of-{plan.shards:05d}"
        # A runner may run a shard several times, even at once. Each attempt writes its own file.
        # All have the same bytes, so any of them may be the last.
        scratch = posixpath.join(plan.scratch, f"{split}-{name}-{uuid.uuid4().hex}")
        with tf.io.TFRecordWriter(scratch) as writer:
            for example in self._examples(splits.shard_ids(self._ids[split], shard, plan.shards)):
                writer.write(example)
        fileio.rename(scratch, posixpath.join(plan.folders[split], name), overwrite=True)

    def _examples(self, ids: splits.Ids) -> Iterator[bytes]:
        for first in range(int(ids[0]), int(ids[-1]) + 1, BLOCK) if len(ids) else ():
            count = min(BLOCK, int(ids[-1]) + 1 - first)
            mine = ids[(ids >= first) & (ids < first + count)]
            records = self._plan.staged.read(first, count)[mine - first]
            yield from serialize(records[:, 0], records[:, 1:], mine)


def serialize(labels: Labels, planes: Planes, ids: splits.Ids) -> Iterator[bytes]:
    """Yields each image as a serialized tf.Example, its features in order of name.

    Args:
      labels: uint8 ``[n]``.
      planes: uint8 ``[n, 3072]``: red, green and blue planes; written in HWC order.
      ids: int64 ``[n]``.
    """
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
    n, pixels = len(planes), features.IMAGE_BYTES
    channels = features.IMAGE_SHAPE[-1]
    hwc = np.empty((n, pixels // channels, channels), np.uint8)
    for channel, plane in enumerate(np.split(planes, channels, axis=1)):
        hwc[:, :, channel] = plane  # three times as fast as a transpose
    data = hwc.tobytes()
    for start in range(0, n * pixels, pixels):
        yield data[start : start + pixels]
