"""The source that an ExampleGen reads: its fingerprint, and its examples by id."""

from __future__ import annotations

import abc
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from stagecraft.components.example_gen import splits
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.archives.progress import Progress

SKIPPED = "count_skipped"
"""Custom property of the examples: files of the source of which there are none."""


class Refused(NamedTuple):
    """A file of the source from which no example can be made."""

    file: str
    problem: str
    """Completes a sentence that begins with the file, and says what to do."""


class Content(abc.ABC):
    """Examples with ids from 0, whose bytes any Beam worker can read."""

    @abc.abstractmethod
    def split_ids(self, val_fraction: float) -> dict[str, splits.Ids]:
        """The ids of every split, ascending."""

    @abc.abstractmethod
    def examples(self, ids: splits.Ids) -> Iterator[bytes | Refused]:
        """The examples of some ids, ascending, as serialized tf.Examples."""


class Source(abc.ABC):
    """A source whose files are available."""

    path: str

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the content, hexadecimal."""

    def in_common(self) -> str:
        """Facts that must be the same in all spans that a model trains on, such as class names."""
        return ""

    @abc.abstractmethod
    def content(self, folder: str, progress: Progress) -> Content:
        """Reads the source, with a new folder for files that Beam workers read."""


class Staged(Content):
    """Examples in one file, each at its offset."""

    def __init__(self, path: str, offsets: list[int], n_train: int, n_test: int):
        """See :func:`stage`."""
        self._path, self._offsets = path, np.array(offsets, np.int64)
        self._n_train, self._n_test = n_train, n_test

    def split_ids(self, val_fraction: float) -> dict[str, splits.Ids]:
        """``eval`` is the test part; without one, as large as ``val``."""
        if self._n_test:
            return splits.split_ids(self._n_train, self._n_test, val_fraction)
        return splits.three(self._n_train, val_fraction)

    def examples(self, ids: splits.Ids) -> Iterator[bytes]:
        """Reads each example."""
        with files.open_binary(self._path) as stream:
            for index in ids.tolist():
                stream.seek(int(self._offsets[index]))
                yield stream.read(int(self._offsets[index + 1] - self._offsets[index]))


def stage(examples: Iterable[bytes], folder: str, n_test: int = 0) -> Staged:
    """Writes serialized examples to a file in a new folder; the last ``n_test`` are the test part.

    The folder is on any file system that TFX knows.
    """
    from tfx.dsl.io import fileio

    fileio.makedirs(folder)
    path, offsets = posixpath.join(folder, "examples"), [0]
    with fileio.open(path, "wb") as stream:
        for example in examples:
            stream.write(example)
            offsets.append(offsets[-1] + len(example))
    return Staged(path, offsets, len(offsets) - 1 - n_test, n_test)


def serialize(values: Mapping[str, bytes | int]) -> bytes:
    """A serialized tf.Example; the same values give the same bytes."""
    import tensorflow as tf

    example: Any = tf.train.Example()
    for name, value in values.items():
        feature = example.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        else:
            feature.int64_list.value.append(value)
    serialized: bytes = example.SerializeToString(deterministic=True)
    return serialized
