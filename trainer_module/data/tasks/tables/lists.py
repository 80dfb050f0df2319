"""Kinds of columns with several values in an example. Imports no TensorFlow.

The values are a list of Parquet, Avro or a tf.Example, dense, sparse or ragged; or the parts of a
text. Each value is treated as the value of a column with one value is, by the same code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.mismatches import Mismatch, Observed
from stagecraft.trainer_module.data.tasks.tables.column import (
    Categories,
    Column,
    ValueCheck,
    checked,
    present,
    texts,
)

_NUMBER = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|"


@dataclasses.dataclass(frozen=True)
class Several(Column):
    """Base of columns with several values."""

    of: Column | None = None
    """The kind of each value."""

    separator: str | None = None
    """Between the values in a text, such as ``;``. None: the feature itself has several values."""

    def __post_init__(self) -> None:
        of: Any = self.of
        use = "of: {kind: vocabulary, size: 100}"
        if not isinstance(of, Column) or list(of.sources("it")) != ["it"] or of.lengths("it"):
            problem = "is no kind of column that reads the values of this one"
            raise SettingError("task.args: of", of, problem, use)
        if self.separator is not None:
            checks.of_type("task.args: separator", self.separator, str, "is not a text", '";"')
            if not self.separator:
                raise SettingError("task.args: separator", "''", "is empty", '";"')

    @property
    def takes_gaps(self) -> bool:
        """Whether the values are parts of one text."""
        return self.separator is not None

    @property
    def kind(self) -> Column:
        """The kind of each value."""
        assert self.of is not None, "the constructor refuses it"
        return self.of

    def sources(self, name: str) -> Mapping[str, bool]:
        """The raw feature: a text may hold numbers."""
        return {self.source or name: self.separator is None and self.kind.needs_numbers}

    @property
    def code(self) -> tuple[str, ...]:
        """The code of the column and of its values' kind."""
        return (*super().code, *self.kind.code)

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the values' kind."""
        return self.kind.files

    def mismatches(
        self, name: str, observed: Mapping[str, Observed], train: str
    ) -> Iterable[Mismatch]:
        """The mismatches of the values' kind."""
        source, inner = self.source or name, f"{name}.of"
        if source in observed:
            found = observed[source] if self.separator is None else Observed("BYTES")
            for each in self.kind.mismatches(inner, {inner: found}, train):
                yield each._replace(feature=source)

    def value_checks(self, name: str) -> Iterable[ValueCheck]:
        """The checks of each value, and one that parts of a text are numbers."""
        source = self.source or name
        inner = [each._replace(feature=source) for each in self.kind.value_checks(f"{name}.of")]
        if self.separator is None:
            return inner
        if self.kind.needs_numbers:
            setting = f"task.args.features.{name}.separator"
            wanted = f"numbers with {self.separator!r} between them"
            inner.append(ValueCheck(source, setting, self.separator, wanted, _are_numbers))
        return [each._replace(accepts=self.of_parts(each.accepts)) for each in inner]

    def of_parts(self, accepts: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A check of texts, from a check of their parts."""

        def accepts_all(values: Any) -> Any:
            import tensorflow as tf

            parts = tf.strings.split(texts(values), self.separator)
            stripped = tf.strings.strip(parts.flat_values)
            right = tf.equal(stripped, "") | accepts(stripped)
            rows, count = parts.value_rowids(), tf.size(values, tf.int64)
            return tf.math.unsorted_segment_min(tf.cast(right, tf.int32), rows, count) > 0

        return accepts_all

    def _inputs_of_values(self, name: str, raw: Any) -> tuple[Mapping[str, Any], Any, Any]:
        """Inputs of :attr:`of` for all values ``[n, 1]``, the row of each, and the batch's size."""
        source = self.source or name
        values, rows, count = self.values(source, raw)
        if self.separator is not None and self.kind.needs_numbers:
            values = _parsed(source, values)
        return self.kind.transform(name, present(source, values)), rows, count

    def values(self, source: str, raw: Any) -> tuple[Any, Any, Any]:
        """All values ``[n]``, the row of each, and the batch's size.

        A list of any length ends with the last value that is not missing, as in a request, whose
        lists are padded to the longest one. In a list of fixed length, each gap keeps its place.

        Raises:
            UserError: there are lists of lists.
        """
        import tensorflow as tf

        if isinstance(raw, tf.sparse.SparseTensor):
            rows, values, count = raw.indices[:, 0], raw.values, raw.dense_shape[0]
        elif isinstance(raw, tf.RaggedTensor):
            if raw.ragged_rank > 1 or raw.flat_values.shape.rank != 1:
                problem = f"the column {source} has lists of lists, which no kind of column takes"
                raise UserError(problem, record=source, suggestion="a feature of one list")
            rows, values, count = raw.value_rowids(), raw.flat_values, raw.nrows()
        else:
            width = raw.shape[1:].num_elements()
            count = tf.shape(raw, tf.int64)[0]
            rows, values = tf.repeat(tf.range(count), width), tf.reshape(raw, [-1])
        if self.separator is not None:
            parts = tf.strings.split(texts(values), self.separator)
            rows = tf.gather(rows, parts.value_rowids())
            values = tf.strings.strip(parts.flat_values)
        elif not isinstance(raw, tf.Tensor) and not values.dtype.is_integer:
            is_text = values.dtype == tf.string
            known = tf.not_equal(values, "") if is_text else ~tf.math.is_nan(values)
            place = tf.range(tf.size(rows, tf.int64))
            ends = tf.math.unsorted_segment_max(tf.where(known, place, -1), rows, count)
            kept = place <= tf.gather(ends, rows)
            values, rows = tf.boolean_mask(values, kept), tf.boolean_mask(rows, kept)
        return values, rows, count


@dataclasses.dataclass(frozen=True)
class MultiHot(Several):
    """Which categories a list has: a 1 for each id that occurs, otherwise 0.

    A list without values is all zeros; so is the id of a missing value.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.of, Categories):
            use = "of: {kind: vocabulary, size: 100}, or kind: sequence"
            raise SettingError("task.args: of", self.of, "has no ids", use)

    @property
    def _known(self) -> int:
        assert isinstance(self.of, Categories)
        return self.of.known

    def inputs(self, name: str) -> Mapping[str, int | None]:
        """Numbers."""
        return {name: None}

    def lengths(self, name: str) -> Mapping[str, int]:
        """One number for each id."""
        return {name: self._known}

    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """Ones and zeros ``[batch, ids]``."""
        made, rows, count = self._inputs_of_values(name, raw)
        return {name: multi_hot(rows, made[name][:, 0], count, self._known)}


def multi_hot(rows: Any, ids: Any, count: Any, size: int) -> Any:
    """``[count, size]``: 1 where a row has an id below ``size``, otherwise 0."""
    import tensorflow as tf

    places = tf.boolean_mask(tf.stack([rows, ids], axis=1), ids < size)
    shape = tf.stack([count, tf.constant(size, tf.int64)])
    counts = tf.scatter_nd(places, tf.ones([tf.shape(places)[0]]), shape)
    return tf.ensure_shape(tf.minimum(counts, 1.0), [None, size])


KEEP = ("last", "first")
"""Values of :attr:`Sequence.keep`."""


@dataclasses.dataclass(frozen=True)
class Sequence(Several):
    """The values of a list in their order, ``length`` of them: shorter lists are padded.

    Padding is 0 for numbers, 1 for ``NAME_missing``, and the id of a missing value for ids.
    """

    length: int = 10

    keep: str = "last"
    """Which values of a longer list: the ``last``, so that padding comes before the values, as in
    ``keras.utils.pad_sequences``; or the ``first``, so that padding comes behind them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("task.args: length", self.length, 2)
        if self.keep not in KEEP:
            raise SettingError("task.args: keep", self.keep, "is unknown", " or ".join(KEEP))

    def inputs(self, name: str) -> Mapping[str, int | None]:
        """The inputs of the values' kind."""
        return self.kind.inputs(name)

    def lengths(self, name: str) -> Mapping[str, int]:
        """``length`` of each."""
        return dict.fromkeys(self.inputs(name), self.length)

    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """Values ``[batch, length]``."""
        import tensorflow as tf

        made, rows, count = self._inputs_of_values(name, raw)
        sizes = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, count)
        starts = tf.cumsum(sizes, exclusive=True)
        places = tf.range(tf.size(rows, tf.int64)) - tf.gather(starts, rows)
        if self.keep == "last":
            places += self.length - tf.gather(sizes, rows)
        kept = (places >= 0) & (places < self.length)
        where = tf.boolean_mask(tf.stack([rows, places], axis=1), kept)
        result = {}
        for each, ids in self.inputs(name).items():
            values = tf.boolean_mask(made[each][:, 0], kept)
            padding = float(each == f"{name}_missing") if ids is None else ids - 1
            shape = tf.stack([count, tf.constant(self.length, tf.int64)])
            filled = tf.fill(shape, tf.constant(padding, values.dtype))
            filled = tf.tensor_scatter_nd_update(filled, where, values)
            result[each] = tf.ensure_shape(filled, [None, self.length])
        return result


def _are_numbers(values: Any) -> Any:
    import tensorflow as tf

    return tf.strings.regex_full_match(texts(values), _NUMBER)


def _parsed(source: str, values: Any) -> Any:
    """The numbers of texts, float64; NaN for an empty text, an error for any other text."""
    import tensorflow as tf

    is_number = _are_numbers(values)
    wrong = tf.strings.reduce_join(tf.boolean_mask(values, ~is_number)[:1])
    problem = tf.strings.join([f"the column {source} has a part that is no number: ", wrong])
    usable = is_number & tf.not_equal(values, "")
    numbers = tf.strings.to_number(tf.where(usable, values, "nan"), tf.float64)
    return checked(numbers, tf.reduce_all(is_number), problem)
