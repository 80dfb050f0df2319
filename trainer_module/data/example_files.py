"""Finds, counts and reads files of serialized examples; errors name the damaged file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from stagecraft.common.errors import UserError

_BATCH = 1024

_FRAME_BYTES = 8 + 4 + 4
"""Overhead of each record in a TFRecord: length, and two checksums
(``tensorflow/core/lib/io/record_writer.h``)."""


def expand(files: Sequence[str]) -> list[str]:
    """The files that match paths and patterns (``folder/*``); at least one.

    Those of a pattern are sorted by name. The patterns keep their order: the folders of several
    spans have other names on each runner.
    """
    paths = [path for pattern in files for path in sorted(tf.io.gfile.glob(pattern))]
    if not paths:
        names = ", ".join(files)
        problem = f"{names}: no such file" if names else "no files: expected paths or patterns"
        raise UserError(problem, file=names)
    return paths


def compression(paths: Sequence[str]) -> str:
    """TensorFlow's name of the compression of these TFRecords."""
    return "GZIP" if paths[0].endswith(".gz") else ""


def records(paths: Sequence[str]) -> tf.data.Dataset:
    """The records, string scalars, file by file."""
    return tf.data.TFRecordDataset(paths, compression_type=compression(paths))


def count(paths: Sequence[str]) -> int:
    """Number of records; verifies the checksum of each."""
    with _naming_damaged(paths):
        sizes = records(paths).batch(_BATCH).map(lambda batch: tf.size(batch, out_type=tf.int64))
        return int(sizes.reduce(tf.constant(0, tf.int64), tf.add))


def first(paths: Sequence[str]) -> bytes:
    """The first record."""
    with _naming_damaged(paths):
        for record in records(paths).take(1).as_numpy_iterator():
            return bytes(record)
    raise UserError(
        f"{paths[0]}: neither this file nor the files next to it contain an example", file=paths[0]
    )


def load(paths: Sequence[str], num_examples: int) -> tf.Tensor:
    """Loads all records, string ``[num_examples]``; refuses another number of records."""
    with _naming_damaged(paths):
        # As one batch, whose strings are moved, not copied.
        loaded = records(paths).batch(num_examples + 1).take(1).get_single_element()
    loaded_examples = int(tf.size(loaded))
    if loaded_examples != num_examples:
        raise UserError(
            f"{paths[0]} and the files next to it: loaded {loaded_examples} examples, but an "
            f"earlier count found {num_examples}; another process writes to these files",
            file=paths[0],
        )
    return loaded


@contextlib.contextmanager
def _naming_damaged(paths: Sequence[str]) -> Iterator[None]:
    """Adds file and position to TensorFlow's error for a damaged record."""
    try:
        yield
    except tf.errors.DataLossError:
        for path in paths:
            whole, offset = 0, 0
            try:
                for record in records([path]).as_numpy_iterator():
                    whole, offset = whole + 1, offset + len(record) + _FRAME_BYTES
            except tf.errors.DataLossError:
                record_name = f"byte {offset:,}" + (" uncompressed" if compression([path]) else "")
                raise UserError(
                    f"{path}: damaged after {whole} complete records, at {record_name}; "
                    "rerun the component that wrote this file",
                    file=path,
                    record=record_name,
                ) from None
        raise
