"""Files of serialized examples: found, counted, read, and named where one is damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from stagecraft.schemas.errors import UserError

_BATCH = 1024

_FRAME_BYTES = 8 + 4 + 4
"""Around each record of a TFRecord: length, and two checksums
(``tensorflow/core/lib/io/record_writer.h``)."""


def expand(files: Sequence[str]) -> list[str]:
    """The files that paths and patterns (``folder/*``) stand for, in the order of their names.

    Raises:
        UserError: there are none.
    """
    paths = sorted(path for pattern in files for path in tf.io.gfile.glob(pattern))
    if not paths:
        raise UserError(f"{', '.join(files) or 'no pattern given'}: there are no such files")
    return paths


def compression(paths: Sequence[str]) -> str:
    """TensorFlow's name for how these TFRecords are compressed."""
    return "GZIP" if paths[0].endswith(".gz") else ""


def records(paths: Sequence[str]) -> tf.data.Dataset:
    """Their records, string scalars, one file after the other."""
    return tf.data.TFRecordDataset(paths, compression_type=compression(paths))


def count(paths: Sequence[str]) -> int:
    """Number of records, each of which is read once and held against its checksum.

    Raises:
        UserError: a file is damaged.
    """
    with _naming_damaged(paths):
        return _count(paths)


def first(paths: Sequence[str]) -> bytes:
    """The first record.

    Raises:
        UserError: there is none, or its file is damaged.
    """
    with _naming_damaged(paths):
        for record in records(paths).take(1).as_numpy_iterator():
            return bytes(record)
    raise UserError(f"{paths[0]}: there is no example in it, nor in the files beside it")


def load(paths: Sequence[str], num_examples: int) -> tf.Tensor:
    """All records in memory, string ``[num_examples]``.

    Raises:
        UserError: a file is damaged, or there are more or fewer records.
    """
    with _naming_damaged(paths):
        # As one batch: its strings are moved, not copied.
        loaded = records(paths).batch(num_examples + 1).take(1).get_single_element()
    found = int(tf.size(loaded))
    if found != num_examples:
        raise UserError(
            f"{paths[0]} and the files beside it: {found} examples where {num_examples} were "
            "counted; something else writes there"
        )
    return loaded


def _count(paths: Sequence[str]) -> int:
    sizes = records(paths).batch(_BATCH).map(lambda batch: tf.size(batch, out_type=tf.int64))
    return int(sizes.reduce(tf.constant(0, tf.int64), tf.add))


@contextlib.contextmanager
def _naming_damaged(paths: Sequence[str]) -> Iterator[None]:
    """Turns the error of a damaged record, which does not say where it is, into one that does."""
    try:
        yield
    except tf.errors.DataLossError:
        for path in paths:
            whole, offset = 0, 0
            try:
                for record in records([path]).as_numpy_iterator():
                    whole, offset = whole + 1, offset + len(record) + _FRAME_BYTES
            except tf.errors.DataLossError:
                place = f"byte {offset:,}" + (" uncompressed" if compression([path]) else "")
                raise UserError(
                    f"{path}: damaged after {whole} whole records, at {place}; have the component "
                    "that wrote it run again"
                ) from None
        raise
