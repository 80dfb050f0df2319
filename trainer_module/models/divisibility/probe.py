"""Compares a training call for a batch with the calls for its parts.

A segment of the model is called with a batch A, with a batch B, and with both as one batch. The
result for each example must be the same; a loss that layers add must be the sum of A's and B's, or
their mean; what layers assign must be the mean. In the call with both, A's and B's outputs replace
those of each layer. So a mistake shows at its own layer alone, a layer that is known to differ
(``BatchNormalization``, random layers) hides nothing after it, and rounding does not accumulate.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models.layers.walk import intercepted, walk
from stagecraft.trainer_module.models.stages.stage import Called, Segment

EXAMPLES = 2
"""Number of examples in A, and in B."""

_ROUNDING = {tf.float16: 5e-2, tf.bfloat16: 2e-1}
_ROUNDING_32 = 1e-3
"""Largest relative difference that counts as rounding: far more than that of a sum of some thousand
terms, and far less than the share of another example in a mean over four."""


class Probed(NamedTuple):
    """The three calls of a segment."""

    one: Called
    other: Called
    both: Called
    mixing: str
    """The first layer whose result for an example depends on other examples; empty: none."""


def probe(
    segment: Segment,
    values: Sequence[tf.Tensor],
    one: Nest,
    other: Nest,
    exempt: Collection[Any],
) -> Probed:
    """Calls a segment three times, eagerly, with A and B, each tensor ``[EXAMPLES, ...]``.

    ``exempt``: layers whose result may depend on the batch.
    """
    step, rows = tf.constant(0, tf.int64), tf.range(2 * EXAMPLES, dtype=tf.int64)
    watch = _Watch(exempt)
    with watch.watching(segment.model):
        seen_one = watch.begin({})
        first = segment.call(values, one, step, rows[:EXAMPLES])
        seen_other = watch.begin({})
        second = segment.call(values, other, step, rows[EXAMPLES:])
        watch.begin({key: (call, seen_other.get(key)) for key, call in seen_one.items()})
        joined = tf.nest.map_structure(lambda a, b: tf.concat([a, b], 0), one, other)
        both = segment.call(values, joined, step, rows)
    mixing = watch.mixing
    if not mixing and not _adds_up(segment.model, both.outputs, first.outputs, second.outputs):
        mixing = segment.model.name
    return Probed(first, second, both, mixing)


def equal(one: Any, other: Any) -> bool:
    """Whether two tensors are equal up to rounding; NaN equals NaN."""
    one, other = tf.convert_to_tensor(one), tf.convert_to_tensor(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (one.dtype.is_floating or one.dtype.is_complex):
        return bool(tf.reduce_all(tf.equal(one, other)))
    tolerance = _ROUNDING.get(one.dtype, _ROUNDING_32)
    a, b = (np.asarray(tf.cast(value, tf.complex128)) for value in (one, other))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite].astype(str), b[~finite].astype(str)):
        return False
    scale = max(np.abs(a[finite]).max(initial=0), np.abs(b[finite]).max(initial=0))
    return bool(np.abs(a[finite] - b[finite]).max(initial=0) <= tolerance * scale)


class _Call(NamedTuple):
    inputs: list[Any]
    outputs: list[Any]


class _Watch:
    """Records inputs and outputs of each layer, and replaces outputs in the third call."""

    def __init__(self, exempt: Collection[Any]):
        self._calls: dict[tuple[str, int], _Call] = {}
        self.mixing = ""
        self._before: Mapping[tuple[str, int], tuple[_Call, _Call | None]] = {}
        self._counts: Counter[str] = Counter()
        self._exempt = {id(layer) for layer in exempt}

    def begin(
        self, before: Mapping[tuple[str, int], tuple[_Call, _Call | None]]
    ) -> dict[tuple[str, int], _Call]:
        """Begins another call of the segment; ``before``: recorded calls with A and B."""
        self._counts.clear()
        self._before = before
        self._calls = {}
        return self._calls

    def watching(self, model: keras.Model) -> contextlib.AbstractContextManager[None]:
        """Watches the layers that are called in the block."""
        paths = {id(layer): path for path, layer in walk(model)}
        return intercepted(
            [layer for _, layer in walk(model)],
            lambda layer, call: self._watched(layer, paths[id(layer)], call),
        )

    def _watched(self, layer: Any, path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            key = (path, self._counts[path])
            self._counts[path] += 1
            outputs = call(*args, **kwargs)
            pair = _Call(_tensors((args, kwargs)), _tensors(outputs))
            # Inside of a graph, such as that of a vectorized map, tensors have no values.
            eager = tf.__internal__.EagerTensor
            if not all(isinstance(each, eager) for each in pair.inputs + pair.outputs):
                return outputs
            self._calls[key] = pair
            one, other = self._before.get(key, (None, None))
            if one is None or other is None:
                return outputs
            return self._compared(layer, path, outputs, pair, one, other)

        return watched

    def _compared(
        self, layer: Any, path: str, outputs: Any, call: _Call, one: _Call, other: _Call
    ) -> Any:
        groups = [(call.inputs, one.inputs, other.inputs, f"the input of {path}")]
        if id(layer) not in self._exempt:
            groups.append((call.outputs, one.outputs, other.outputs, path))
        for both, first, second, name in groups:
            alike = len(both) == len(first) == len(second)
            if not self.mixing and not (alike and all(map(_is_both, both, first, second))):
                self.mixing = name
        triples = zip(call.outputs, one.outputs, other.outputs, strict=False)
        replaced = (
            whole if (axis := _axis(whole, a, b)) is None else tf.concat([a, b], axis)
            for whole, a, b in triples
        )
        return tf.nest.map_structure(
            lambda each: next(replaced, each) if isinstance(each, tf.Tensor) else each, outputs
        )


def _adds_up(model: keras.Model, *outputs: Nest) -> bool:
    """Whether each output belongs to its example, or is a mean that the model declares.

    ``means_of_batch`` of a model names outputs whose value for each example is one mean over the
    batch; the task takes their mean over the parts.
    """
    means = getattr(model, "means_of_batch", ())
    parts = [("", outputs)]
    if means:
        parts = [(name, tuple(each[name] for each in outputs)) for name in outputs[0]]
    return all(
        _is_both(*values) or (name in means and _is_mean(*values))
        for name, three in parts
        for values in zip(*map(tf.nest.flatten, three), strict=True)
    )


def _is_mean(both: Any, one: Any, other: Any) -> bool:
    """Whether a tensor has one value for all examples, the mean of A's and B's."""
    a, b, whole = (tf.convert_to_tensor(each)[:1] for each in (one, other, both))
    alike = all(equal(each, tf.repeat(each[:1], len(each), 0)) for each in (one, other, both))
    return alike and equal(whole, (a + b) / 2)


def _is_both(both: Any, one: Any, other: Any) -> bool:
    """Whether a tensor is the concatenation of A's and B's, or the same for all."""
    if both.shape == one.shape == other.shape:
        return equal(both, one) and equal(both, other)
    axis = _axis(both, one, other)
    return axis is not None and equal(both, tf.concat([one, other], axis))


def _axis(both: Any, one: Any, other: Any) -> int | None:
    """The dimension along which a tensor is as long as two others together; None: none."""
    if not len(both.shape) == len(one.shape) == len(other.shape):
        return None
    longer = [
        axis
        for axis, (size, a, b) in enumerate(zip(both.shape, one.shape, other.shape, strict=True))
        if not size == a == b
    ]
    if len(longer) != 1:
        return None
    (axis,) = longer
    return axis if both.shape[axis] == one.shape[axis] + other.shape[axis] else None


def _tensors(structure: Any) -> list[Any]:
    return [each for each in tf.nest.flatten(structure) if isinstance(each, tf.Tensor)]
