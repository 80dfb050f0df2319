"""Values that shards divide: a slice on the device of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.models.stages.shards.split import Split


class Sliced(NamedTuple):
    """The slices of a variable's value."""

    tensors: Sequence[tf.Tensor]
    axis: int

    def whole(self) -> tf.Tensor:
        """The value, on the current device."""
        return tf.concat(list(map(tf.identity, self.tensors)), self.axis)


def gradient(slices: Sequence[Any], split: Split, like: tf.Tensor) -> Any:
    """The gradient of a value, from those of its slices; None: nothing uses it.

    It is sparse if those of the slices are: see :func:`~stagecraft.parallel_model.pins.total`.

    Args:
        slices: a gradient for each slice, or None.
        like: the value.
    """
    if all(each is None for each in slices):
        return None
    if all(isinstance(each, tf.IndexedSlices) for each in slices) and split.axis < 2:
        values, indices = [each.values for each in slices], [each.indices for each in slices]
        shape = tf.shape(like, out_type=indices[0].dtype)
        if split.axis == 1:  # each has looked up the same rows
            return tf.IndexedSlices(tf.concat(values, axis=-1), indices[0], shape)
        begins = [sum(split.sizes[:shard]) for shard in range(len(slices))]
        moved = [own + tf.cast(b, own.dtype) for own, b in zip(indices, begins, strict=True)]
        return tf.IndexedSlices(tf.concat(values, 0), tf.concat(moved, 0), shape)
    dense = [
        tf.zeros(split.shape(like.shape, shard), like.dtype)
        if each is None
        else tf.convert_to_tensor(each)
        for shard, each in enumerate(slices)
    ]
    return tf.concat(dense, split.axis)
