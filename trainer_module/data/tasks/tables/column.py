"""What a column of a table is: how Transform makes the model's inputs from raw features.

Imports no TensorFlow.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True)
class Column(abc.ABC):
    """A raw feature with at most one value in each example."""

    needs_numbers: ClassVar[bool] = True
    """Whether it takes no text."""

    source: str | None = dataclasses.field(default=None, kw_only=True)
    """The raw feature; None: the one with the name of the column."""

    def sources(self, name: str) -> Mapping[str, bool]:
        """The raw features that the column reads, and whether each must be a number."""
        return {self.source or name: self.needs_numbers}

    def result(self, name: str, features: Mapping[str, Any]) -> Mapping[str, Any]:
        """:meth:`transform` of the column's raw feature among all ``features``."""
        return self.transform(name, features[self.source or name])

    @abc.abstractmethod
    def inputs(self, name: str) -> Mapping[str, int | None]:
        """The model's inputs by name: number of ids, int64 from 0; or None: a float32."""

    @abc.abstractmethod
    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """The model's inputs, ``[batch, 1]``, by TensorFlow Transform.

        Args:
            raw: ``[batch]``, ``[batch, 1]``; or a ``tf.SparseTensor`` that lacks missing values.
        """


class Categories(Column):
    """A category, or its absence: one id."""

    @property
    @abc.abstractmethod
    def known(self) -> int:
        """Number of ids for values; the next id is for a missing value."""

    def inputs(self, name: str) -> Mapping[str, int | None]:
        """One id."""
        return {name: self.known + 1}

    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """Ids."""
        import tensorflow as tf

        ids = each(self._ids(name, raw), lambda value: tf.cast(value, tf.int64))
        return {name: dense(ids, self.known)}

    @abc.abstractmethod
    def _ids(self, name: str, raw: Any) -> Any:
        """The id of each value."""


def dense(values: Any, missing: Any) -> Any:
    """``[batch, 1]``, with ``missing`` where a sparse tensor has no value."""
    import tensorflow as tf

    if not isinstance(values, tf.sparse.SparseTensor):
        return tf.reshape(values, [-1, 1])
    shape = [values.dense_shape[0], 1]
    values = tf.sparse.to_dense(
        tf.sparse.SparseTensor(values.indices, values.values, shape), missing
    )
    return tf.ensure_shape(values, [None, 1])


def places(values: Sequence[Any], name: str) -> Any:
    """A lookup table for Transform's graph: text -> place in ``values``, int64; -1: not there."""
    import tensorflow as tf
    import tensorflow_transform as tft

    def table() -> Any:
        keys = tf.constant(list(map(str, values)))
        numbers = tf.range(len(values), dtype=tf.int64)
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, numbers), -1)

    return tft.make_and_track_object(table, name=f"places_{name}")


def each(values: Any, function: Any) -> Any:
    """``function`` of the values that are there."""
    import tensorflow as tf

    if isinstance(values, tf.sparse.SparseTensor):
        return values.with_values(function(values.values))
    return function(values)


def texts(raw: Any) -> Any:
    """The values as texts."""
    import tensorflow as tf

    return each(raw, lambda value: value if value.dtype == tf.string else tf.as_string(value))
