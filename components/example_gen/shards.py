"""Writes the shards of the splits, each by one Beam element."""

from __future__ import annotations

import posixpath
import tempfile
import uuid
from collections.abc import Mapping
from typing import NamedTuple

import apache_beam as beam
import tensorflow as tf
from tfx.dsl.io import fileio

from stagecraft.components.example_gen import splits
from stagecraft.components.example_gen.content import Content
from stagecraft.components.object_store import filesystem


class Plan(NamedTuple):
    """Input, splits and output of the shards."""

    content: Content
    val_fraction: float
    shards: int  # files per split
    folders: Mapping[str, str]  # split -> output folder
    scratch: str  # a folder on the same file system, for unfinished files

    def ids(self) -> dict[str, splits.Ids]:
        """The ids of every split."""
        return self.content.split_ids(self.val_fraction)

    def elements(self) -> list[tuple[str, int]]:
        """Split and number of every shard."""
        return [(split, shard) for split in splits.SPLITS for shard in range(self.shards)]


class WriteShard(beam.DoFn):
    """Writes the shard of an element ``(split, number)`` as an uncompressed TFRecord."""

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
        attempt = f"{split}-{name}-{uuid.uuid4().hex}"
        target = posixpath.join(plan.folders[split], name)
        if filesystem.served(target):  # TensorFlow cannot write there; an upload is atomic
            with tempfile.TemporaryDirectory(prefix="stagecraft-shard-") as folder:
                self._write(split, shard, path := posixpath.join(folder, attempt))
                filesystem.upload(path, target)
        else:
            self._write(split, shard, path := posixpath.join(plan.scratch, attempt))
            fileio.rename(path, target, overwrite=True)

    def _write(self, split: str, shard: int, path: str) -> None:
        ids = splits.shard_ids(self._ids[split], shard, self._plan.shards)
        with tf.io.TFRecordWriter(path) as writer:
            for example in self._plan.content.examples(ids):
                writer.write(example)
