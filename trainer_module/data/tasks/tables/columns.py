"""Kinds of columns: how Transform makes the model's inputs from a raw feature.

One declaration gives the inputs of the model and Transform's graph. Imports no TensorFlow.
"""

from __future__ import annotations

import abc
import dataclasses
import difflib
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.data.tasks import checks


class Column(abc.ABC):
    """A raw feature with at most one value in each example."""

    needs_numbers: ClassVar[bool] = True
    """Whether it takes no text."""

    @abc.abstractmethod
    def inputs(self, name: str) -> Mapping[str, int | None]:
        """The model's inputs by name: number of ids, int64 from 0; or None: a float32."""

    @abc.abstractmethod
    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """The model's inputs, ``[batch, 1]``, by TensorFlow Transform.

        Args:
            raw: ``[batch]``, ``[batch, 1]``; or a ``tf.SparseTensor`` that lacks missing values.
        """


@dataclasses.dataclass(frozen=True)
class Numeric(Column):
    """A number, scaled to mean 0 and variance 1 over the train split.

    A missing value becomes the mean.
    """

    missing_indicator: bool = False
    """Whether the model gets one more input, ``NAME_missing``: 1 for a missing value, else 0."""

    def inputs(self, name: str) -> Mapping[str, int | None]:
        """One number, or two."""
        return {name: None, **({f"{name}_missing": None} if self.missing_indicator else {})}

    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """Z-scores."""
        import tensorflow as tf
        import tensorflow_transform as tft

        values = _each(raw, lambda value: tf.cast(value, tf.float32))
        result = {name: dense(tft.scale_to_z_score(values), 0.0)}
        if self.missing_indicator:
            result[f"{name}_missing"] = 1.0 - dense(_each(values, tf.ones_like), 0.0)
        return result


class _Categories(Column):
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

        ids = _each(self._ids(name, raw), lambda value: tf.cast(value, tf.int64))
        return {name: dense(ids, self.known)}

    @abc.abstractmethod
    def _ids(self, name: str, raw: Any) -> Any:
        """The id of each value."""


@dataclasses.dataclass(frozen=True)
class Bucketized(_Categories):
    """A number as one of ``buckets`` quantiles of the train split."""

    buckets: int = 10

    def __post_init__(self) -> None:
        checks.whole("task.args: buckets", self.buckets, 2)

    @property
    def known(self) -> int:
        """One id for each bucket."""
        return self.buckets

    def _ids(self, name: str, raw: Any) -> Any:
        import tensorflow_transform as tft

        return tft.bucketize(raw, self.buckets)


@dataclasses.dataclass(frozen=True)
class Identity(_Categories):
    """An integer from 0 below ``size``, which is its own id; any other value counts as missing."""

    size: int = 2

    def __post_init__(self) -> None:
        checks.whole("task.args: size", self.size, 2)

    @property
    def known(self) -> int:
        """One id for each integer."""
        return self.size

    def _ids(self, name: str, raw: Any) -> Any:
        import tensorflow as tf

        def ids(values: Any) -> Any:
            inside = (values >= 0) & (values < tf.cast(self.size, values.dtype))
            return tf.where(inside, values, tf.cast(self.size, values.dtype))

        return _each(raw, ids)


@dataclasses.dataclass(frozen=True)
class Vocabulary(_Categories):
    """A text or an integer by its place among the ``size`` most frequent ones."""

    needs_numbers: ClassVar[bool] = False

    size: int = 1000
    oov: int = 1
    """Ids that all other values share by their hash."""

    def __post_init__(self) -> None:
        checks.whole("task.args: size", self.size, 1)
        checks.whole("task.args: oov", self.oov, 1)

    @property
    def known(self) -> int:
        """Ids of the vocabulary, then those of other values."""
        return self.size + self.oov

    def _ids(self, name: str, raw: Any) -> Any:
        import tensorflow_transform as tft

        return tft.compute_and_apply_vocabulary(
            _texts(raw), top_k=self.size, num_oov_buckets=self.oov, vocab_filename=name
        )


@dataclasses.dataclass(frozen=True)
class Hashed(_Categories):
    """A text or an integer by its hash, without a vocabulary."""

    needs_numbers: ClassVar[bool] = False

    buckets: int = 100

    def __post_init__(self) -> None:
        checks.whole("task.args: buckets", self.buckets, 1)

    @property
    def known(self) -> int:
        """One id for each hash."""
        return self.buckets

    def _ids(self, name: str, raw: Any) -> Any:
        import tensorflow_transform as tft

        return tft.hash_strings(_texts(raw), self.buckets)


KINDS: Mapping[str, type[Column]] = {
    "numeric": Numeric,
    "bucketized": Bucketized,
    "identity": Identity,
    "vocabulary": Vocabulary,
    "hashed": Hashed,
}
"""Names in ``task.args``."""


def column(name: str, given: Any) -> Column:
    """A column: itself, or as in YAML ``numeric`` or ``{kind: vocabulary, size: 50}``.

    Raises:
        SettingError: there is no such kind, or it has no such argument.
    """
    if isinstance(given, Column):
        return given
    setting = f"task.args.features.{name}"
    arguments = dict(given) if isinstance(given, Mapping) else {"kind": given}
    kind = KINDS.get(arguments.pop("kind", "numeric"))
    if kind is None:
        kinds = ", ".join(KINDS)
        raise SettingError(setting, given, "is no kind of column", f"kind: one of {kinds}")
    known = list(inspect.signature(kind).parameters)
    for argument in arguments:
        if argument not in known:
            near = difflib.get_close_matches(argument, known, n=1)
            use = near[0] if near else f"one of {', '.join(known)}"
            raise SettingError(setting, argument, f"is not an argument of {kind.__name__}", use)
    return kind(**arguments)


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


def _each(values: Any, function: Any) -> Any:
    """``function`` of the values that are there."""
    import tensorflow as tf

    if isinstance(values, tf.sparse.SparseTensor):
        return values.with_values(function(values.values))
    return function(values)


def _texts(raw: Any) -> Any:
    import tensorflow as tf

    return _each(raw, lambda value: value if value.dtype == tf.string else tf.as_string(value))
