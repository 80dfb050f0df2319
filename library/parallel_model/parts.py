"""Divides the arguments of a call into parts by rows, and joins what the parts return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from keras.src import backend

from stagecraft.parallel_model.draws import Rows

_COMPOSITE = (tf.RaggedTensor, tf.SparseTensor)

OTHER_SHAPES = "stagecraft: the parts of a batch return outputs of other shapes"


class Part(NamedTuple):
    """Some rows of a batch."""

    rows: Rows
    """At least one: a part that has none computes the last row, which counts nothing."""
    count: tf.Tensor
    """int32 scalar: the rows that count."""

    def share(self, dtype: tf.DType) -> tf.Tensor:
        """The share of the batch: a scalar."""
        return tf.cast(self.count, dtype) / tf.cast(self.rows.total, dtype)


def row_count(arguments: Any) -> tf.Tensor:
    """Rows of the arguments of a call: int32 scalar, unknown while a graph is made.

    A graph that knew it would make the shapes of random numbers look like constants.
    """
    leaves = [leaf for leaf in tf.nest.flatten(arguments) if _has_rows(leaf)]
    if not leaves:
        raise ValueError("no argument has rows")
    first = leaves[0]
    if isinstance(first, tf.RaggedTensor):
        count = tf.cast(first.nrows(), tf.int32)
    elif isinstance(first, tf.SparseTensor):
        count = tf.cast(first.dense_shape[0], tf.int32)
    else:
        count = tf.shape(first)[0]
    if tf.executing_eagerly():
        return count
    return tf.raw_ops.PlaceholderWithDefault(input=count, shape=[])


def divide(total: tf.Tensor, bounds: Sequence[int], parts: int) -> list[Part]:
    """The rows between bounds, which are numbers of ``parts``; these are as even as possible."""
    places = total * tf.constant([*bounds], tf.int32) // parts
    begin, end = places[:-1], places[1:]
    first = tf.minimum(begin, total - 1)
    columns = first, tf.maximum(end, first + 1) - first, end - begin
    rows = zip(*(tf.unstack(each, len(bounds) - 1) for each in columns), strict=True)
    return [Part(Rows(first, size, total), count) for first, size, count in rows]


def take(arguments: Any, rows: Rows) -> Any:
    """The rows of each argument, with those of its Keras mask; others than tensors stay."""

    def of(leaf: Any) -> Any:
        if not _has_rows(leaf):
            return leaf
        taken = _rows(leaf, rows.first, rows.first + rows.count)
        mask = None if isinstance(leaf, _COMPOSITE) else backend.get_keras_mask(leaf)
        if mask is not None:
            backend.set_keras_mask(taken, _rows(mask, rows.first, rows.first + rows.count))
        return taken

    return tf.nest.map_structure(of, arguments)


def join(outputs: Sequence[Any], parts: Sequence[Part], refuse: Callable[[Any], Any]) -> Any:
    """The outputs for the whole batch, from those of its parts.

    Args:
        refuse: called with an output that has no rows.
    """

    def of(*leaves: Any) -> Any:
        if not tf.is_tensor(leaves[0]):
            return leaves[0]
        if not _has_rows(leaves[0]):
            refuse(leaves[0])
        counted = [_rows(leaf, 0, part.count) for leaf, part in zip(leaves, parts, strict=True)]
        if isinstance(leaves[0], tf.SparseTensor):
            return tf.sparse.concat(0, counted)
        with tf.control_dependencies(_same_shapes(counted)):
            joined = tf.concat(counted, axis=0)
        masks = [
            None if isinstance(leaf, _COMPOSITE) else backend.get_keras_mask(leaf)
            for leaf in leaves
        ]
        if None not in masks:
            counted = [_rows(m, 0, part.count) for m, part in zip(masks, parts, strict=True)]
            backend.set_keras_mask(joined, tf.concat(counted, axis=0))
        return joined

    return tf.nest.map_structure(of, *outputs)


def _same_shapes(leaves: Sequence[Any]) -> list[tf.Operation]:
    """Checks of shapes that are not known while a graph is made; without rows."""
    if isinstance(leaves[0], _COMPOSITE) or leaves[0].shape[1:].is_fully_defined():
        return []
    sizes = [tf.shape(leaf)[1:] for leaf in leaves]
    return [
        tf.debugging.Assert(tf.reduce_all(size == sizes[0]), [OTHER_SHAPES, size, sizes[0]])
        for size in sizes[1:]
    ]


def _has_rows(leaf: Any) -> bool:
    return tf.is_tensor(leaf) and leaf.shape.rank != 0


def _rows(leaf: Any, begin: Any, end: Any) -> Any:
    if isinstance(leaf, tf.SparseTensor):
        start = tf.concat([[tf.cast(begin, tf.int64)], tf.zeros_like(leaf.dense_shape[1:])], 0)
        size = tf.concat([[tf.cast(end - begin, tf.int64)], leaf.dense_shape[1:]], 0)
        return tf.sparse.slice(leaf, start, size)
    return leaf[begin:end]
