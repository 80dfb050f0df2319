"""Kinds of columns: how Transform makes the model's inputs from a raw feature.

One declaration gives the inputs of the model and Transform's graph. Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from stagecraft.common import signatures, user_objects
from stagecraft.common.errors import SettingError, said
from stagecraft.common.user_objects import is_name
from stagecraft.trainer_module import safe_names
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.mismatches import (
    Mismatch,
    Observed,
    is_number,
)
from stagecraft.trainer_module.data.tasks.tables import lists
from stagecraft.trainer_module.data.tasks.tables.column import (
    Categories,
    Column,
    ValueCheck,
    checked,
    dense,
    each,
    places,
    present,
    texts,
    whole,
    z_scores,
)
from stagecraft.trainer_module.data.tasks.tables.dates import Date
from stagecraft.trainer_module.data.tasks.tables.lists import MultiHot


@dataclasses.dataclass(frozen=True)
class Numeric(Column):
    """A number, scaled to mean 0 and variance 1 over the train split.

    A missing value becomes the mean.
    """

    missing_indicator: bool = False
    """Whether the model gets one more input, ``NAME_missing``: 1 for a missing value, else 0."""

    normalizer: str | Callable[[Any], Any] = "z_score"
    """``z_score``; ``none``: the number itself; or a function of TensorFlow, as itself or as
    ``package.module:function``: float32 to float32, of the same shape."""

    default: float | None = None
    """The number in place of a missing one, before the normalizer. None: the mean for ``z_score``,
    otherwise 0."""

    def __post_init__(self) -> None:
        given = self.normalizer
        if not callable(given) and given not in ("z_score", "none") and not is_name(given):
            use = "z_score, none, or package.module:function"
            raise SettingError("task.args: normalizer", given, "is no normalizer", use)

    @property
    def code(self) -> tuple[str, ...]:
        """The module of the column, and the function of ``normalizer``."""
        given = self.normalizer
        return (*super().code, *([given] if isinstance(given, str) and is_name(given) else []))

    def inputs(self, name: str) -> Mapping[str, int | None]:
        """One number, or two."""
        return {name: None, **({f"{name}_missing": None} if self.missing_indicator else {})}

    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """Z-scores, or what the normalizer makes.

        A number that is not finite then is an error of TensorFlow that names the column.
        """
        import tensorflow as tf

        filled = raw
        if self.default is not None:
            filled = dense(each(raw, lambda value: tf.cast(value, tf.float64)), self.default)
        if self.normalizer == "z_score":
            found = dense(z_scores(filled), 0.0)
        else:
            number = each(filled, lambda value: tf.cast(value, tf.float32))
            found = self._normalized(dense(number, 0.0))
        wrong = (
            f"the column {self.source or name} has a number that is infinite, or not finite after "
            f"its normalizer {self.normalizer}"
        )
        result = {name: checked(found, tf.reduce_all(tf.math.is_finite(found)), wrong)}
        if self.missing_indicator:
            ones = each(raw, lambda value: tf.ones_like(value, tf.float32))
            result[f"{name}_missing"] = 1.0 - dense(ones, 0.0)
        return result

    def _normalized(self, values: Any) -> Any:
        if self.normalizer == "none":
            return values
        function: Any = self.normalizer
        if isinstance(function, str):
            function = user_objects.load("task.args: normalizer", function)
        return function(values)


@dataclasses.dataclass(frozen=True)
class Bucketized(Categories):
    """A number as one of ``buckets`` quantiles of the train split, or of the given intervals."""

    buckets: int = 10

    boundaries: Sequence[float] = ()
    """In place of ``buckets``: ``[0, 9]`` gives the buckets below 0, from 0 below 9, and from 9."""

    def __post_init__(self) -> None:
        checks.whole("task.args: buckets", self.buckets, 2)
        given = tuple(self.boundaries)
        if list(given) != sorted(set(given)):
            problem = "are not in ascending order"
            raise SettingError("task.args: boundaries", self.boundaries, problem, "[0, 10]")
        object.__setattr__(self, "boundaries", given)

    @property
    def known(self) -> int:
        """One id for each bucket."""
        return len(self.boundaries) + 1 if self.boundaries else self.buckets

    def _ids(self, name: str, raw: Any) -> Any:
        import tensorflow as tf
        import tensorflow_transform as tft

        if not self.boundaries:
            # TensorFlow Transform makes float32 of whole numbers, which may all become one.
            return tft.bucketize(z_scores(raw) if raw.dtype.is_integer else raw, self.buckets)

        def ids(values: Any) -> Any:
            # A float32 is compared with float32: 0.7 is in the bucket from 0.7.
            values = values if values.dtype.is_floating else tf.cast(values, tf.float64)
            boundaries = tf.constant(self.boundaries, values.dtype)
            flat = tf.searchsorted(boundaries, tf.reshape(values, [-1]), side="right")
            return tf.reshape(flat, tf.shape(values))

        return each(raw, ids)


@dataclasses.dataclass(frozen=True)
class Identity(Categories):
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
            if values.dtype.is_floating:
                inside &= values == tf.floor(values)
            return tf.where(inside, values, tf.cast(self.size, values.dtype))

        return each(raw, ids)


@dataclasses.dataclass(frozen=True)
class Vocabulary(Categories):
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
            each(texts(raw), line),
            top_k=self.size,
            num_oov_buckets=self.oov,
            vocab_filename=safe_names.safe(name),
        )


_ESCAPED = ((r"\\", r"\\\\"), ("\n", r"\\n"), ("\r", r"\\r"))
"""Escapes of characters that a line of a vocabulary file cannot hold, and of the backslash."""


_MEANT = {b"n": b"\n", b"r": b"\r"}


def of_line(line: bytes) -> bytes:
    """The text of a line of a vocabulary file: the inverse of what Transform writes."""
    return re.sub(rb"\\(.)", lambda found: _MEANT.get(found[1], found[1]), line)


def line(texts: Any) -> Any:
    """Texts as Transform writes them into a vocabulary file, which has a line for each."""
    import tensorflow as tf

    for pattern, escape in _ESCAPED:
        texts = tf.strings.regex_replace(texts, pattern, escape)
    return texts


@dataclasses.dataclass(frozen=True)
class Hashed(Categories):
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

        return tft.hash_strings(texts(raw), self.buckets)


@dataclasses.dataclass(frozen=True)
class Listed(Categories):
    """A text or an integer by its place in a list."""

    needs_numbers: ClassVar[bool] = False

    values: Sequence[str | int] = ()
    file: str | None = None
    """In place of ``values``: a text file with a value in each line, read at once."""
    oov: int = 0
    """Ids that all other values share by their hash; 0: other values count as missing."""

    def __post_init__(self) -> None:
        checks.whole("task.args: oov", self.oov, 0)
        values = tuple(self.values)
        if self.file is not None:
            try:
                text = pathlib.Path(self.file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                problem = f"cannot be read: {said(error)}"
                raise SettingError("task.args: file", self.file, problem, "a text file") from error
            values = values or tuple(text.splitlines())
        listed = tuple(_text(value) for value in values)
        if "" in listed:
            problem = "have an empty text, which is a missing value"
            raise SettingError("task.args: values", listed[:9], problem, '["no", "yes"]')
        if not listed or len(set(listed)) < len(listed):
            problem = "are not one or more different values"
            raise SettingError("task.args: values", listed[:9], problem, '["no", "yes"]')
        object.__setattr__(self, "values", listed)

    @property
    def files(self) -> tuple[str, ...]:
        """The file of the values."""
        return (self.file,) if self.file else ()

    def mismatches(
        self, name: str, observed: Mapping[str, Observed], train: str
    ) -> Iterable[Mismatch]:
        """A list of which the column has no value."""
        source = self.source or name
        found = observed.get(source, Observed(""))
        can_be: Mapping[str, Callable[[str], Any]] = {"INT": _WHOLE.fullmatch, "FLOAT": _is_float}
        occurs, use = can_be.get(found.kind, bool), "numbers, such as 1"
        if known := found.values.get(train):
            occurs, use = known.__contains__, f"some of {', '.join([*known][:_SHOWN])}"
        values = [str(value) for value in self.values]
        if not any(map(occurs, values)):
            setting = f"task.args.features.{name}.{'file' if self.file else 'values'}"
            shown = self.file or ", ".join(values[:_SHOWN])
            problem = f"has no value of the column {source!r} ({found.kind}) in the split {train}"
            yield Mismatch(setting, shown, source, problem, use)

    @property
    def known(self) -> int:
        """Ids of the list, then those of other values."""
        return len(self.values) + self.oov

    def _ids(self, name: str, raw: Any) -> Any:
        import tensorflow as tf

        given = texts(raw)
        table = places(self.values, name)
        count = len(self.values)

        def ids(values: Any) -> Any:
            found = table.lookup(values)
            if self.oov:
                other = count + tf.strings.to_hash_bucket_fast(values, self.oov)
            else:
                other = tf.fill(tf.shape(found), tf.constant(self.known, tf.int64))
            return tf.where(found < 0, other, found)

        return each(given, ids)


_SHOWN = 5

_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
"""The texts of whole numbers."""


def _is_float(text: str) -> bool:
    """Whether a number has such a text."""
    return bool(_WHOLE.fullmatch(text)) or (is_number(text) and not float(text).is_integer())


def _text(value: Any) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


@dataclasses.dataclass(frozen=True)
class Crossed(Categories):
    """A combination of several features by its hash.

    The combination is missing if one of the features is. The hash depends on the order of the keys.
    """

    keys: Sequence[str | Bucketized] = ()
    """Raw features, texts or whole numbers; or columns :class:`Bucketized` with a ``source``. In
    YAML: ``age`` or ``{kind: bucketized, source: age, boundaries: [30]}``."""
    buckets: int = 100
    hash_key: int | None = None

    def __post_init__(self) -> None:
        checks.whole("task.args: buckets", self.buckets, 1)
        keys = tuple(
            key if isinstance(key, (str, Column)) else column("keys", key) for key in self.keys
        )
        for key in keys:
            if not isinstance(key, str) and not (isinstance(key, Bucketized) and key.source):
                use = "a raw feature, or Bucketized with source and boundaries"
                raise SettingError("task.args: keys", key, "cannot be crossed", use)
        if len(keys) < 2 or self.source:
            problem = "are not two features or more"
            raise SettingError("task.args: keys", self.keys, problem, "keys: [town, street]")
        object.__setattr__(self, "keys", keys)

    @property
    def known(self) -> int:
        """One id for each hash."""
        return self.buckets

    def sources(self, name: str) -> Mapping[str, bool]:
        """The features of all keys."""
        return {source: needs for key in self.keys for source, needs in _source(key).items()}

    def value_checks(self, name: str) -> Iterable[ValueCheck]:
        """Whether keys that are numbers are whole ones."""

        def accepts(values: Any) -> Any:
            import tensorflow as tf

            is_text = values.dtype == tf.string
            return tf.ones_like(values, tf.bool) if is_text else whole(values)[1]

        setting, wanted = f"task.args.features.{name}.keys", "texts or whole numbers"
        for key in self.keys:
            if isinstance(key, str):
                use = f"{{kind: bucketized, source: {key}}}"
                suggest = functools.partial(lambda use, example: use, use)
                yield ValueCheck(key, setting, key, wanted, accepts, suggest)

    def result(self, name: str, features: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ids."""
        import tensorflow as tf

        parts, there = [], True
        for key in self.keys:
            [source] = _source(key)
            raw = present(source, features[source])
            there &= dense(each(raw, lambda value: tf.ones_like(value, tf.bool)), False)
            if isinstance(key, str):
                values = each(raw, functools.partial(_key, source))
                parts.append(dense(values, "" if raw.dtype == tf.string else 0))
            else:
                parts.append(key.transform(source, raw)[source])
        parts = [part if part.dtype == tf.string else tf.cast(part, tf.int64) for part in parts]
        # The op of Estimator's crossed_column, so that its weights fit.
        hashed = tf.sparse.cross_hashed(parts, self.buckets, self.hash_key)
        ids = tf.where(there, tf.reshape(hashed.values, [-1, 1]), self.buckets)
        return {name: tf.ensure_shape(ids, [None, 1])}

    def _ids(self, name: str, raw: Any) -> Any:
        raise TypeError("a crossed column has several raw features; call result")


def _key(source: str, values: Any) -> Any:
    """Texts, or whole numbers, to be crossed."""
    import tensorflow as tf

    if not values.dtype.is_floating:
        return values
    numbers, inside = whole(values)
    problem = f"the column {source} has a number with a fraction, which cannot be crossed"
    return checked(numbers, tf.reduce_all(inside), problem)


def _source(key: str | Bucketized) -> Mapping[str, bool]:
    return {key: False} if isinstance(key, str) else key.sources("")


KINDS: Mapping[str, type[Column]] = {
    "numeric": Numeric,
    "bucketized": Bucketized,
    "identity": Identity,
    "vocabulary": Vocabulary,
    "hashed": Hashed,
    "listed": Listed,
    "crossed": Crossed,
    "date": Date,
    "multi_hot": MultiHot,
    "sequence": lists.Sequence,
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
    known = inspect.signature(kind).parameters
    signatures.refuse_unknown(setting, arguments, known, kind.__name__)
    if "of" in arguments:
        arguments["of"] = column(f"{name}.of", arguments["of"])
    return kind(**arguments)
