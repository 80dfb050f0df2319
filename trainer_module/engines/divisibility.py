"""Checks that a model's training calls can be divided into parts; errors name the layer.

Compares a training call for a batch with the calls for its parts.

A segment of the model is called with a batch A, with a batch B, and with both as one batch. The
result for each example must be the same; a loss that layers add must be the sum of A's and B's, or
their mean; what layers assign must be the mean. In the call with both, A's and B's outputs replace
those of each layer. So a mistake shows at its own layer alone, a layer that is known to differ
(``BatchNormalization``, random layers) hides nothing after it, and rounding does not accumulate.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from stagecraft.common.errors import UserError, said
from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models import model_graph, structural_keys
from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
from stagecraft.trainer_module.models.layers.walk import intercepted, walk
from stagecraft.trainer_module.pipeline_parallel.stage import Called, Segment, Stage
from stagecraft.trainer_module.settings import ParallelSettings

_SCALES = (1.0, 10.0, 100.0)
"""Scales of the inputs, tried until each loss is known to be a sum or not. The first
:data:`_LEAST_TRIES` are always tried, because one scale may not reveal a maximum or a hinge."""

_LEAST_TRIES = 2
_SUM, _MEAN = "sum", "mean"
_Kinds = dict[int, set[str]]
"""The possible kinds of each loss of a segment, by its index."""

_WHOLE = (
    "train the model in one part: parallel.strategy: one_device with parallel.accumulate: 1, or a "
    "grid of one replica with parallel.microbatches: 1"
)

_WRITES = (
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "ResourceScatterAdd",
    "ResourceScatterUpdate",
    "ResourceStridedSliceAssign",
)
_DRAWS = (
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "RandomGamma",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "RngReadAndSkip",
    "StatefulStandardNormalV2",
    "StatefulTruncatedNormal",
    "StatefulUniform",
    "StatefulUniformFullInt",
    "StatefulUniformInt",
    "TruncatedNormal",
)


def check(stages: Sequence[Stage], parallel: ParallelSettings) -> None:
    """Determines which losses are sums over a batch, and which variables layers assign.

    It sets ``Segment.summed`` and ``Segment.assigned``.

    Calls the model eagerly, on the host, with a few examples of noise: once, or a few times if each
    batch is divided.

    Raises:
        ModelRefusedError: a layer computes something else for a part of a batch than Keras does
            for the whole batch, or its assignments would be lost.
    """
    segments = [segment for stage in stages for segment in stage.segments]
    parts = stages[0].parts
    uses = Counter(id(variable) for segment in segments for variable in segment.variables)
    tied = {key for key, count in uses.items() if count > 1}
    for segment in segments:
        _check_layers(segment.model, parallel, parts)
    kinds: list[_Kinds] = [{} for _ in segments]
    generator = np.random.default_rng(0)
    with tf.device("CPU:0"):
        for number, scale in enumerate(_SCALES if parts > 1 else _SCALES[:1]):
            if number >= _LEAST_TRIES and not _unknown(kinds):
                break
            one, other = (_noise(stages[0].model, generator, scale) for _ in range(2))
            for segment, known in zip(segments, kinds, strict=True):
                if _is_known(segment):
                    continue
                values = [_varied(variable, generator) for variable in segment.variables]
                if number == 0:
                    _check_stateful_ops(segment, values, one, parallel.remat)
                with _accepting(segment):
                    if parts > 1:
                        one, other = _divided(segment, values, one, other, known, tied, generator)
                    else:
                        one = _whole(segment, values, one, tied)
    if unknown := _unknown(kinds):
        raise ModelRefusedError(
            segments[unknown[0]].model.name,
            "adds a loss that is 0 for random input, so Stagecraft cannot tell whether it is a "
            "sum or a mean over the batch",
            f"remove the loss, or {_WHOLE}",
        )
    for segment, known in zip(segments, kinds, strict=True):
        segment.summed = frozenset(place for place, kind in known.items() if kind == {_SUM})
        if _is_known(segment):
            first = segment.equal.first
            segment.summed, segment.assigned = first.summed, first.assigned
            _check_tied(segment, tied)


def _is_known(segment: Segment) -> bool:
    """Whether an earlier segment computes the same, and returns what it takes."""
    if segment.equal.first is segment:
        return False
    ends = model_graph.of(segment.model), segment.model.output
    return len(set(map(structural_keys.specs_key, ends))) == 1


@contextlib.contextmanager
def _accepting(segment: Segment) -> Iterator[None]:
    """Explains the error of a layer that accepts no random input."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # whatever the user's layers raise
        raise ModelRefusedError(
            segment.model.name,
            f"does not accept the random input with which Stagecraft examines it: {said(error)}",
            "layers that accept any input, such as a lookup with num_oov_indices=1",
        ) from error


def _unknown(kinds: Sequence[_Kinds]) -> list[int]:
    """The segments with a loss that may be a sum or a mean."""
    return [index for index, known in enumerate(kinds) if {_SUM, _MEAN} in known.values()]


def _whole(
    segment: Segment, values: Sequence[tf.Tensor], inputs: Nest, tied: Collection[int]
) -> Nest:
    """The segment's outputs for a batch that is not divided."""
    rows = tf.range(EXAMPLES, dtype=tf.int64)
    called = segment.call(values, inputs, tf.constant(0, tf.int64), rows)
    _check_assigned(segment, called, tied)
    return called.outputs


def _divided(
    segment: Segment,
    values: Sequence[tf.Tensor],
    one: Nest,
    other: Nest,
    kinds: _Kinds,
    tied: Collection[int],
    generator: np.random.Generator,
) -> tuple[Nest, Nest]:
    """Returns the segment's outputs for A and B; excludes kinds that do not fit the losses."""
    # The result of these for an example depends on its batch, or on a draw.
    exempt = [
        layer
        for _, layer in walk(segment.model)
        if isinstance(layer, keras.layers.BatchNormalization) or dropout.draws_itself(layer)
    ]
    probed = probe(segment, values, one, other, exempt)
    _check_assigned(segment, probed.both, tied)
    if probed.mixing:
        raise ModelRefusedError(
            f"{probed.mixing}",
            "makes an example's result depend on the other examples of its batch, and the topology "
            "divides each batch into parts",
            f"compute per example, or {_WHOLE}",
        )
    _check_state(segment, values, probed, exempt)
    _exclude(segment, probed, kinds)
    if probed.both.added:
        # Much noise on the weights makes the experts of a mixture nearly equal: a product of two
        # means, which balances their load, then differs too little from a mean.
        near = [_varied(variable, generator, 0.01) for variable in segment.variables]
        _exclude(segment, probe(segment, near, one, other, exempt), kinds)
    return probed.one.outputs, probed.other.outputs


def _exclude(segment: Segment, probed: Probed, kinds: _Kinds) -> None:
    """Excludes kinds that do not fit the losses; raises if none is left for a loss."""
    calls = probed.one, probed.other, probed.both
    counts = {len(call.added) for call in calls}
    if len(counts) > 1:
        raise ModelRefusedError(
            segment.model.name,
            "does not add the same number of losses for each batch",
            f"call add_loss in each call, or {_WHOLE}",
        )
    for place in range(counts.pop()):
        a, b, both = (call.added[place] for call in calls)
        matches = {
            _SUM: equal(both, a + b),
            _MEAN: equal(both, (a + b) / 2),
        }
        possible = kinds.setdefault(place, {_SUM, _MEAN})
        possible -= {kind for kind, is_match in matches.items() if not is_match}
        if not possible:
            raise ModelRefusedError(
                _adds(segment.model, place),
                "adds a loss that is neither a sum nor a mean over the batch, and the topology "
                "divides each batch into parts",
                f"add a sum or a mean over the examples, or {_WHOLE}",
            )


def _check_state(
    segment: Segment,
    values: Sequence[tf.Tensor],
    probed: Probed,
    exempt: Sequence[Any],
) -> None:
    """Raises if an assigned value is not the mean over the parts, which the engines compute."""
    known = {id(variable) for layer in exempt for variable in layer.variables}
    for index, whole in probed.both.changed.items():
        variable = segment.variables[index]
        if id(variable) in known or not whole.dtype.is_floating:
            continue
        a, b = (call.changed.get(index, values[index]) for call in (probed.one, probed.other))
        if not equal(whole, (a + b) / 2):
            raise ModelRefusedError(
                f"the variable {variable.path!r}",
                "is assigned a value that is not a mean over the batch, and the topology divides "
                "each batch into parts",
                f"assign a mean over the examples, or {_WHOLE}",
            )


def _check_assigned(segment: Segment, called: Called, tied: Collection[int]) -> None:
    """Raises if an assignment is lost: the variable is in no checkpoint, or is tied."""
    segment.assigned |= called.changed.keys()
    metrics = {
        id(variable)
        for _, layer in [("", segment.model), *walk(segment.model)]
        for metric in getattr(layer, "_metrics", [])
        for variable in metric.variables
    }
    for variable in called.foreign:
        if id(variable) in metrics:
            continue
        if "seed_generator" in variable.path:
            raise ModelRefusedError(
                segment.model.name,
                "draws random numbers without its own seed, so each step would draw the same "
                "numbers",
                "create self.seed = keras.random.SeedGenerator(0) in the layer's __init__, and "
                "draw with seed=self.seed",
            )
        raise ModelRefusedError(
            f"the variable {variable.path!r}",
            "is assigned in training, but is not one of the model's weights, and is not saved",
            "create it with self.add_weight(trainable=False) in a layer",
        )
    _check_tied(segment, tied)


def _check_tied(segment: Segment, tied: Collection[int]) -> None:
    """Raises if a layer assigns a variable that other segments read as it was before the step."""
    for variable in (segment.variables[index] for index in sorted(segment.assigned)):
        if id(variable) in tied:
            raise ModelRefusedError(
                f"the variable {variable.path!r}",
                "is assigned in training, and is used on both sides of a cut",
                "choose other parallel.cuts, or set parallel.stages: 1 and parallel.remat: false",
            )


def _check_layers(model: keras.Model, parallel: ParallelSettings, parts: int) -> None:
    """Raises for layers that are known not to support a topology."""
    for path, layer in walk(model):
        replicas = parallel.found.keras_replicas
        alone = not replicas or parallel.accumulate > 1
        if getattr(layer, "synchronized", False) and parts > 1 and alone:
            raise ModelRefusedError(
                path,
                f"({type(layer).__name__}) has synchronized=True, which Keras supports only "
                "between the replicas of a tf.distribute strategy",
                "set synchronized=False, or parallel.strategy: mirrored or multi_worker_mirrored "
                "with parallel.accumulate: 1",
            )


def _adds(model: keras.Model, place: int) -> str:
    """The layer that adds a loss, as far as is known."""
    names = [
        path
        for path, layer in walk(model)
        if layer.activity_regularizer is not None
        or "add_loss" in getattr(getattr(type(layer), "call", None), "__code__", _NO_CODE).co_names
    ]
    return names[min(place, len(names) - 1)] if names else model.name


_NO_CODE = (lambda: None).__code__


def _noise(model: keras.Model, generator: np.random.Generator, scale: float) -> Nest:
    """Noise in the shape of the model's inputs, ``[EXAMPLES, ...]``; any ids of a vocabulary."""
    own = model_graph.of(model)
    sizes = {
        id(tensor): layer.input_dim
        for _, layer in walk(model)
        if isinstance(layer, keras.layers.Embedding)
        for node in layer._inbound_nodes
        for tensor in node.input_tensors
    }

    def ids(symbol: Any, drawn: tf.Tensor) -> tf.Tensor:
        if drawn.dtype.is_floating or id(symbol) not in sizes:
            return drawn
        return tf.cast(generator.integers(0, sizes[id(symbol)], drawn.shape), drawn.dtype)

    drawn = model_graph.noise(model_graph.specs(own, EXAMPLES, unknown=4), generator, scale)
    return tf.nest.map_structure(ids, own, drawn)


def _varied(
    variable: keras.Variable, generator: np.random.Generator, size: float = 0.1
) -> tf.Tensor:
    """A value near the variable's: a weight of zeros would hide dependencies."""
    value = tf.convert_to_tensor(variable.value)
    if not value.dtype.is_floating:
        return value
    noise = size * np.abs(generator.standard_normal(value.shape))
    return value + tf.cast(tf.constant(noise), value.dtype)


def _check_stateful_ops(
    segment: Segment, values: Sequence[tf.Tensor], inputs: Nest, remat: bool
) -> None:
    """Raises if layers that are not Keras's assign a ``tf.Variable``, or draw again under remat."""
    own = _custom_layers(segment.model)
    if not own:
        return
    ops = _ops(segment, values, inputs)
    names = ", ".join(map(repr, own))
    part = f"the layer {names}" if len(own) == 1 else f"one of the layers {names}"
    if writes := sorted(ops.intersection(_WRITES)):
        raise ModelRefusedError(
            part,
            f"assigns a tf.Variable ({writes[0]}), which the engines neither save nor divide",
            "create it with self.add_weight(trainable=False)",
        )
    if remat and (draws := sorted(ops.intersection(_DRAWS))):
        raise ModelRefusedError(
            part,
            f"draws with TensorFlow's {draws[0]}, but with parallel.remat the recomputation would "
            "draw other numbers",
            "draw with keras.random and the layer's SeedGenerator, or set parallel.remat: false",
        )


def _custom_layers(model: keras.Model) -> list[str]:
    """Paths of the layers, and of the model itself, whose code is not Keras's."""
    layers = [(model.name, model), *walk(model)]
    return [
        path
        for path, layer in layers
        if isinstance(layer, keras.layers.Lambda)
        or type(layer).call.__module__.partition(".")[0] != "keras"
    ]


def _ops(segment: Segment, values: Sequence[tf.Tensor], inputs: Nest) -> set[str]:
    """Types of the ops in the graph of a training call, including its functions."""

    def call(inputs: Nest, *values: tf.Tensor) -> Nest:
        rows = tf.range(EXAMPLES, dtype=tf.int64)
        return segment.call(values, inputs, tf.constant(0, tf.int64), rows).outputs

    specs = tf.nest.map_structure(
        lambda each: tf.TensorSpec(each.shape, each.dtype), (inputs, *values)
    )
    graph = tf.function(call, autograph=False).get_concrete_function(*specs).graph.as_graph_def()
    inside = (node for function in graph.library.function for node in function.node_def)
    return {node.op for node in (*graph.node, *inside)}


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
