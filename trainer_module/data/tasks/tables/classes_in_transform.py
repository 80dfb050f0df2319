"""Finds the classes of a label in Transform, from the train split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft


class _Classes(beam.PTransform):
    """Batches of one column -> its different values, in the order of the classes."""

    def __init__(self, order: Callable[[Iterable[str]], Sequence[str]]):
        super().__init__()
        self._order = order

    def expand(self, batches: Any) -> Any:
        order = self._order
        return (
            batches
            | beam.FlatMap(lambda batch: set(batch[0].tolist()))
            | beam.Distinct()
            | beam.combiners.ToList()
            | beam.Map(lambda values: _ordered(values, order))
        )


def _ordered(values: Sequence[bytes], order: Callable[[Iterable[str]], Sequence[str]]) -> Any:
    """The names as bytes, also where they are not UTF-8."""
    given = {each.decode(errors="replace"): each for each in values}
    return np.array([given.get(name, name.encode()) for name in order(given)], object)


def find(raw: Any, order: Callable[[Iterable[str]], Sequence[str]]) -> tuple[Any, Any]:
    """The classes by TensorFlow Transform; not by a vocabulary, whose order is that of frequencies.

    Numbers of classes must not change because another class became more frequent.

    Args:
        raw: ``[batch]`` or ``[batch, 1]``, texts or numbers.
        order: makes the classes of the values in the train split; may refuse them.

    Returns:
        The number of each example's class, int64 ``[batch]``, -1 if it has none; and a scalar, the
        names as a serialized tensor.
    """
    values = tf.reshape(raw, [-1])
    if values.dtype.is_floating:
        texts = tf.strings.as_string(values, shortest=True)  # 1.0 is "1"
    else:
        texts = values if values.dtype == tf.string else tf.as_string(values)
    [names] = tft.experimental.ptransform_analyzer(
        [texts], _Classes(order), output_dtypes=[tf.string], output_shapes=[[None]]
    )
    equal = tf.equal(texts[:, tf.newaxis], names[tf.newaxis])
    numbers = tf.where(tf.reduce_any(equal, axis=1), tf.argmax(tf.cast(equal, tf.int8), axis=1), -1)
    return numbers, tf.io.serialize_tensor(names)
