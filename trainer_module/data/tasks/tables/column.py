"""The base of a table's columns: how Transform makes the model's inputs from raw features.

A value is missing if the example has none, and if it is NaN or an empty text: the same in training,
evaluation and serving, because all use Transform's graph. Imports no TensorFlow.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.trainer_module import safe_names
from stagecraft.trainer_module.data.tasks.mismatches import Mismatch, Observed


class ValueCheck(NamedTuple):
    """Which values of a raw feature a setting accepts."""

    feature: str
    setting: str
    """Its full name."""
    value: object
    """Of the setting."""
    expected: str
    """The values that it accepts, in words."""
    accepts: Callable[[Any], Any]
    """Maps values ``[n]`` that are not missing to bools ``[n]``."""
    suggest: Callable[[str], str | None] = lambda example: None
    """A value of the setting that accepts an example."""


@dataclasses.dataclass(frozen=True)
class Column(abc.ABC):
    """A raw feature, with at most one value in each example unless the class says otherwise."""

    needs_numbers: ClassVar[bool] = True
    """Whether it takes no text."""

    source: str | None = dataclasses.field(default=None, kw_only=True)
    """The raw feature; None: the one with the name of the column."""

    def sources(self, name: str) -> Mapping[str, bool]:
        """The raw features that the column reads, and whether each must be a number."""
        return {self.source or name: self.needs_numbers}

    @property
    def takes_gaps(self) -> bool:
        """Whether it has at most one value, which may be missing."""
        return True

    def lengths(self, name: str) -> Mapping[str, int]:
        """Numbers of values of the inputs that have several, by name."""
        return {}

    @property
    def code(self) -> tuple[str, ...]:
        """Dotted paths of the code that makes the inputs."""
        return (type(self).__module__,)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files that it reads."""
        return ()

    def mismatches(
        self, name: str, observed: Mapping[str, Observed], train: str
    ) -> Iterable[Mismatch]:
        """Settings that do not fit the data; see ``Table.mismatches``."""
        return ()

    def value_checks(self, name: str) -> Iterable[ValueCheck]:
        """Checks of each value, which AnomalyGate makes because TFDV cannot."""
        return ()

    def result(self, name: str, features: Mapping[str, Any]) -> Mapping[str, Any]:
        """:meth:`transform` of the column's raw feature among all ``features``."""
        source = self.source or name
        raw = features[source]
        return self.transform(name, present(source, raw) if self.takes_gaps else raw)

    @abc.abstractmethod
    def inputs(self, name: str) -> Mapping[str, int | None]:
        """The model's inputs by name: number of ids, int64 from 0; or None: a float32."""

    @abc.abstractmethod
    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """The model's inputs, ``[batch, 1]`` or ``[batch, length]``, by TensorFlow Transform.

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


def present(source: str, raw: Any) -> Any:
    """The values of a raw feature that are not missing.

    Args:
        source: name of the raw feature, for errors.
        raw: ``[batch]``, ``[batch, 1]``, a ``tf.SparseTensor`` or a ``tf.RaggedTensor``.

    Returns:
        A ``tf.SparseTensor`` ``[batch, 1]``; dense integers, which have no sign of absence, as they
        are. An example with several values is an error of TensorFlow that names the feature.

    Raises:
        UserError: each example has several values.
    """
    import tensorflow as tf

    one = f"the column {source} has several values in an example, but takes one"
    if isinstance(raw, tf.RaggedTensor):
        raw = raw.to_sparse()
    if isinstance(raw, tf.sparse.SparseTensor):
        is_first = tf.reduce_all(tf.equal(raw.indices[:, 1], 0))
        raw = tf.sparse.SparseTensor(
            checked(raw.indices, is_first, one), raw.values, raw.dense_shape
        )
    else:
        if raw.shape.rank and not raw.shape[1:].is_compatible_with([1] * (raw.shape.rank - 1)):
            use = "kind: multi_hot or kind: sequence"
            raise UserError(f"{one}; use {use}", record=source, suggestion=use)
        if raw.dtype.is_integer:
            return raw
        values = tf.reshape(raw, [-1])
        rows = tf.range(tf.size(values, tf.int64))
        places = tf.stack([rows, tf.zeros_like(rows)], axis=1)
        raw = tf.sparse.SparseTensor(places, values, [tf.size(values, tf.int64), 1])
    if raw.dtype.is_integer:
        return raw
    is_text = raw.dtype == tf.string
    known = tf.not_equal(raw.values, "") if is_text else ~tf.math.is_nan(raw.values)
    return tf.sparse.retain(raw, known)


def checked(values: Any, is_right: Any, problem: str) -> Any:
    """Values, or an error of TensorFlow whose text has the problem.

    Not an assertion, since it has a state: TensorFlow orders such ops, so that TensorFlow Transform
    would analyze one column after the other, and runs them in a request that lacks the feature.

    Args:
        values: numbers.
        is_right: a bool.
    """
    import tensorflow as tf

    return values + tf.strings.to_number(tf.where(is_right, "0", problem), values.dtype)


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

    return tft.make_and_track_object(table, name=safe_names.safe(f"places_{name}"))


def each(values: Any, function: Any) -> Any:
    """``function`` of the values that are there."""
    import tensorflow as tf

    if isinstance(values, tf.sparse.SparseTensor):
        return values.with_values(function(values.values))
    return function(values)


def texts(raw: Any) -> Any:
    """The values as texts; each number by its own text, a whole one without a fraction."""
    import tensorflow as tf

    def text(values: Any) -> Any:
        if values.dtype == tf.string:
            return values
        if not values.dtype.is_floating:
            return tf.as_string(values)
        short = tf.strings.as_string(values, shortest=True)
        digits = 9 if values.dtype == tf.float32 else 17
        exact = tf.strings.as_string(values, precision=digits, shortest=True)
        is_short = tf.equal(tf.strings.to_number(short, values.dtype), values)
        numbers, inside = whole(values)
        return tf.where(inside, tf.as_string(numbers), tf.where(is_short, short, exact))

    return each(raw, text)


def whole(values: Any) -> tuple[Any, Any]:
    """Numbers as int64, and whether each is a whole one: otherwise it becomes 0."""
    import tensorflow as tf

    if values.dtype.is_integer:
        return tf.cast(values, tf.int64), tf.ones_like(values, tf.bool)
    inside = tf.equal(values, tf.floor(values)) & (tf.abs(values) < 2.0**63)
    return tf.cast(tf.where(inside, values, tf.zeros_like(values)), tf.int64), inside


_CONSTANT = 1e-13
"""A deviation below this share of the mean is the rounding of equal values."""


def moments(values: Any) -> tuple[Any, Any]:
    """Mean and deviation over the train split, float64 scalars.

    The deviation of equal values is 1; the mean of no values 0.

    Args:
        values: float64 ``[n]``.
    """
    import tensorflow as tf
    import tensorflow_transform as tft

    mean, deviation = tft.mean(values), tf.sqrt(tft.var(values))
    mean = tf.where(tf.math.is_nan(mean), tf.zeros_like(mean), mean)
    varies = deviation > _CONSTANT * tf.abs(mean)  # not so of NaN
    return mean, tf.where(varies, deviation, tf.ones_like(deviation))


def z_scores(values: Any) -> Any:
    """The values that are there, as float32 of mean 0 and deviation 1 over the train split.

    Whole numbers such as seconds since 1970 differ by less than float32 can tell, so it is float64
    that is shifted and scaled.

    Args:
        values: numbers, dense or sparse.
    """
    import tensorflow as tf
    import tensorflow_transform as tft

    wide = each(values, lambda value: tf.cast(value, tf.float64))
    # Not moments, which has two analyzers: Transform would take nearly twice as long.
    scaled = tft.scale_to_z_score(wide)
    return each(scaled, lambda value: tf.cast(value, tf.float32))
