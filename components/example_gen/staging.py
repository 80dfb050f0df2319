"""Writes the data set as plain record files, of which every Beam worker can read any slice.

An archive can only be read from its start. A staged file has records of 3,073 bytes (label, then
planes), so that a worker can seek to its slice.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tfx.dsl.io import fileio

from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.archives.archive import Block
from stagecraft.components.example_gen.archives.layouts import PLANES, TEST, TRAIN

RECORD = 1 + PLANES


class _Part(NamedTuple):
    path: str
    records: int


class Staged(NamedTuple):
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


def write(blocks: Iterable[Block], folder: str) -> Staged:
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

    return Staged(parts(TRAIN), parts(TEST))


def _path(folder: str, part: str, batch: int) -> str:
    return posixpath.join(folder, f"{part}-{batch:05d}")
