"""Splits a model into the models of its stages.

A cut is a place after a call of a layer. All tensors that are alive there cross it: outputs of the
layers before it that a layer after it needs, inputs of the model that it needs, and outputs of the
model. A tensor that a stage does not use itself travels through it. The name of a cut point is that
of the layer before it. The layers of a functional model inside count as the model's own
(:func:`functional.opened`); the name of the model inside is that of its last layer.

A cut point is *plain* if a single tensor crosses it, and no weights are used on both sides. The
others cost more: more tensors are copied, and in each step a tied weight and its gradient. So
``parallel.cuts: auto`` uses plain cut points alone where they give even stages (:data:`UNEVEN`).
Otherwise, as in a U-Net or with two towers, it uses the others as well, except inside residual
blocks. ``parallel.cuts`` may name any cut point.

:func:`balance` divides a sequence into contiguous parts with the least maximal cost, by dynamic
programming: the best division of the first items into some parts extends the best divisions
of fewer items into one part fewer. One run gives the divisions into all numbers of parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.models import model_graph, structural_keys
from stagecraft.trainer_module.models.layers.walk import intercepted

UNEVEN = 4 / 3
"""A division is uneven if its largest part is more than this many times the mean."""


@dataclasses.dataclass(frozen=True)
class CutPoint:
    """The place after a call of a layer."""

    layer: str
    tensors: list[Any] = dataclasses.field(repr=False)
    """Symbolic tensors that cross it, ``[batch, …]``, in the order of computation."""
    tied: bool
    """Whether both sides use a weight."""
    only_reads: bool
    """Whether layers on both sides only read the weights that both use, as embeddings do."""
    size: int
    """Bytes of the call's outputs, for one example."""
    reason: str
    """Why the model cannot be cut here; empty: it can."""

    @property
    def plain(self) -> bool:
        """Whether a single tensor connects the two sides."""
        return len(self.tensors) == 1 and not self.tied


def named_cuts(model: keras.Model, stages: int, cuts: Sequence[str]) -> list[str]:
    """The names in ``parallel.cuts``: the last layers of all stages but the last."""
    names = model_graph.last_layers(model, cuts)
    if len(names) + 1 != stages:
        raise SettingError(
            "parallel.cuts",
            repr(",".join(cuts)),
            f"makes {len(names) + 1} stages, but parallel.stages is {stages}",
            f"{stages - 1} names, or parallel.stages: {len(names) + 1}",
        )
    _check_names(model, names)
    return names


def all_cuts(
    model: keras.Model, stages: int, named: Sequence[str] = (), virtual: int = 1
) -> list[list[str]]:
    """The names of cut points: of the plain ones; of all outside residual blocks as well.

    Or of all, if these are too few, or are not those that ``parallel.cuts`` names. Without names
    for a model that stays whole. ``virtual``: parts of the model on each device.
    """
    if stages == 1 and model_graph.obstacle(model):
        return [[]]
    every = [point.layer for point in cut_points(model)]
    if stages > len(every) + 1 and virtual > 1:
        devices = stages // virtual
        raise SettingError(
            "parallel.virtual_stages",
            virtual,
            f"with parallel.stages: {devices} makes {stages} parts, but the model {model.name!r} "
            f"has {len(every)} cut points",
            f"parallel.virtual_stages: {max(1, (len(every) + 1) // devices)} or fewer",
        )
    if stages > len(every) + 1:
        raise SettingError(
            "parallel.stages",
            stages,
            f"is too many: the model {model.name!r} has {len(every)} cut points",
            f"parallel.stages: {len(every) + 1} or fewer",
        )
    places = _places(model_graph.opened(model))
    choices = [[places[index].layer for index in each] for each in _choices(places)]
    fitting = [each for each in choices if stages <= len(each) + 1 and set(named) <= set(each)]
    return fitting or [every]


def _choices(places: Sequence[CutPoint]) -> list[list[int]]:
    """The plain cut points; these and all outside residual blocks, where that is more.

    In a residual block, at most two tensors are alive; before and after it, one.
    """
    groups = [
        list(group) for _, group in itertools.groupby(range(len(places)), lambda i: places[i].plain)
    ]
    residual = {
        index
        for number, group in enumerate(groups)
        if 0 < number < len(groups) - 1
        and all(len(places[index].tensors) <= 2 and not places[index].tied for index in group)
        for index in group
    }
    legal = [index for index, place in enumerate(places) if not place.reason]
    plain = [index for index in legal if places[index].plain]
    outside = [index for index in legal if places[index].plain or index not in residual]
    return [plain, outside] if len(outside) > len(plain) else [plain]


def is_even(costs: Sequence[float], parts: int) -> bool:
    """Whether a sequence can be divided into contiguous parts of about equal costs."""
    if parts > len(costs):
        return False
    starts = balance([(cost,) for cost in costs], parts) or []
    bounds = itertools.pairwise([0, *starts, len(costs)])
    return max(sum(costs[begin:end]) for begin, end in bounds) * parts <= UNEVEN * sum(costs)


def split(model: keras.Model, cuts: Sequence[str]) -> list[keras.Model]:
    """The models between the cuts; their chain is the model.

    The first takes the model's inputs, the last returns its outputs. Between two of them goes the
    tensor that crosses the cut, or the list of the tensors.
    """
    if not cuts:
        return [model]
    cuts = model_graph.last_layers(model, cuts)
    _check_names(model, cuts)
    model = model_graph.opened(model)
    by_name = {point.layer: point.tensors for point in cut_points(model)}
    crossing = [by_name[name][0] if len(by_name[name]) == 1 else by_name[name] for name in cuts]
    bounds = [model_graph.of(model), *crossing, output(model)]
    return [
        keras.Model(given, _carried(given, wanted), name=f"{model.name}_stage{index}")
        for index, (given, wanted) in enumerate(itertools.pairwise(bounds))
    ]


def output(model: keras.Model) -> Any:
    """The symbolic outputs of a functional model; a sequential one knows them only as a list."""
    return model.outputs[0] if isinstance(model, keras.Sequential) else model.output


def _carried(given: Any, wanted: Any) -> Any:
    """Outputs of a stage: those that are also its inputs pass through a layer."""
    known = {id(tensor) for tensor in tf.nest.flatten(given)}
    return tf.nest.map_structure(
        lambda tensor: model_graph.Carry()(tensor) if id(tensor) in known else tensor, wanted
    )


def segments(model: keras.Model) -> list[keras.Model]:
    """The segments of a model, or of a stage, for recomputing activations.

    Their number is about the square root of the number of cut points, and their activations have
    about equal sizes. The memory of n layers is then of the order of the square root of n (Chen et
    al. 2016, "Training deep nets with sublinear memory cost", section 4.3). A model that cannot be
    cut is one segment.
    """
    if model_graph.obstacle(model):
        return [model]
    places = _places(model_graph.opened(model))
    for legal in _choices(places):
        if legal and is_even(_between(places, legal), 1 + math.isqrt(len(legal))):
            break
    if not legal:
        return [model]
    sizes = [(size,) for size in _between(places, legal)]
    starts = balance(sizes, 1 + math.isqrt(len(legal))) or []
    return split(model, [places[legal[start - 1]].layer for start in starts])


def block_cuts(model: keras.Model) -> list[str]:
    """The cut points at which equal blocks in a row begin and end, such as those of a transformer.

    A block has at least :data:`_LEAST_LAYERS` layers, counting those inside other layers. It
    computes the same as the block before or after it. One tensor that can have a gradient crosses
    such a cut point, and any number of others, such as padding masks.
    """
    if model_graph.obstacle(model):
        return []
    opened = model_graph.opened(model)
    places = _places(opened)
    legal = [
        index
        for index, place in enumerate(places)
        if not place.reason
        and place.only_reads
        and sum(map(model_graph.is_differentiable, place.tensors)) == 1
    ]
    pieces = split(model, [places[index].layer for index in legal])
    numbers: dict[Any, int] = {}
    # Pieces without a key are equal to none.
    keys = [
        numbers.setdefault(structural_keys.model_key(piece) or number, number)
        for number, piece in enumerate(pieces)
    ]
    sizes = [_layers(node.operation) for node in model_graph.calls(opened)]
    layers = [0, *itertools.accumulate(sizes)]
    bounds = [0, *(index + 1 for index in legal), len(places)]
    cuts = set(_run_bounds(keys, [layers[bound] for bound in bounds], 0, len(keys)))
    return [places[bounds[cut] - 1].layer for cut in sorted(cuts - {0, len(keys)})]


def _layers(operation: Any) -> int:
    """The layers without inner layers in an operation; 1 if it is no layer."""
    inner = operation._flatten_layers() if isinstance(operation, keras.Layer) else ()
    return sum(not list(layer._flatten_layers(include_self=False)) for layer in inner) or 1


_LEAST_LAYERS = 4
"""Layers in a block. A call of a function takes about as long as one of a small layer."""


def _run_bounds(keys: Sequence[int], before: Sequence[int], begin: int, end: int) -> list[int]:
    """The first pieces of the blocks between two pieces, and the pieces after the last of them.

    Args:
        before: layers before each piece; the last number counts those of all pieces.
    """
    best = 0, 0, 0, 0  # layers in the run; less its period; where it begins; its blocks
    for period in range(1, (end - begin) // 2 + 1):
        equal = 0
        for last in range(end - period - 1, begin - 1, -1):
            equal = equal + 1 if keys[last] == keys[last + period] else 0
            count = 1 + equal // period
            layers = before[last + count * period] - before[last]
            if count > 1 and layers >= count * _LEAST_LAYERS:
                best = max(best, (layers, -period, last, count))
    _, period, first, count = best
    if not count:
        return []
    period, after = -period, first - period * count
    own = list(range(first, after + 1, period))
    sides = [_run_bounds(keys, before, *ends) for ends in ((begin, first), (after, end))]
    return [*sides[0], *own, *sides[1]]


def _between(places: Sequence[CutPoint], cuts: Sequence[int]) -> list[int]:
    """Bytes of the outputs of the calls between cuts after these places."""
    bounds = [0, *(index + 1 for index in cuts), len(places)]
    return [
        sum(place.size for place in places[begin:end]) for begin, end in itertools.pairwise(bounds)
    ]


def cut_points(model: keras.Model) -> list[CutPoint]:
    """The cut points of a model, in the order of computation.

    Neither inputs nor outputs are cut points, nor are places with state of a layer on both sides,
    such as BatchNorm's statistics, or with a Keras mask, which accompanies a tensor from layer to
    layer but not from stage to stage.
    """
    problem = model_graph.obstacle(model)
    if problem:
        raise UserError(
            f"parallel.stages: the model {model.name!r} cannot be cut: {problem}; use a functional "
            "model (keras.Model(inputs, outputs)), a list with one model per stage, or "
            "parallel.stages: 1",
            setting="parallel.stages",
            value=model.name,
            suggestion="parallel.stages: 1",
        )
    return [place for place in _places(model_graph.opened(model)) if not place.reason]


def _places(model: keras.Model) -> list[CutPoint]:
    """The places after all calls, in the order of computation."""
    nodes, inputs = model_graph.calls(model), model_graph.input_count(model)
    last_use = {id(tensor): len(nodes) for tensor in model.outputs}
    spans: dict[int, _Span] = {}
    for index, node in enumerate(nodes):
        for tensor in node.input_tensors:
            last_use[id(tensor)] = max(index, last_use.get(id(tensor), 0))
        # By variable, to include weights that two layers share, or inside nested models.
        weights = _weights(node.operation)
        for variable in getattr(node.operation, "variables", ()):
            before = spans.get(id(variable))
            reads = isinstance(node.operation, keras.layers.Embedding)
            spans[id(variable)] = _Span(
                before.first if before else index,
                index,
                node.operation.name,
                id(variable) not in weights,
                reads and (before is None or before.only_reads),
            )
    last_call = {id(node.operation): index for index, node in enumerate(nodes)}
    real = _real_outputs(model)
    carried = itertools.takewhile(_carries, reversed(nodes))
    last = len(nodes) - 1 - len(list(carried))
    places: list[CutPoint] = []
    alive: dict[int, Any] = {}
    for index, node in enumerate(nodes):
        alive.update(
            {id(tensor): tensor for tensor in (*(model.inputs if not index else ()), *node.outputs)}
        )
        alive = {key: each for key, each in alive.items() if last_use.get(key, -1) > index}
        tensors = list(alive.values())
        crossed = [span for span in spans.values() if span.first <= index < span.last]
        state = [span.layer for span in crossed if span.is_state]
        reason = ""
        if index < inputs:
            reason = "it is the model's input"
        elif index >= last:
            reason = "it is the model's output"
        elif _carries(node):
            reason = "it computes nothing"
        elif state:
            reason = f"both stages would change the state of {state[0]!r}"
        elif last_call[id(node.operation)] > index:
            reason = "it is called again later"  # and the name has to be unique
        else:
            reason = _obstacle(node, tensors, index, last_call, real)
        size = model_graph.call_bytes(node)
        only_reads = all(span.only_reads for span in crossed)
        places.append(
            CutPoint(node.operation.name, tensors, bool(crossed), only_reads, size, reason)
        )
    return places


def _carries(node: Any) -> bool:
    return isinstance(node.operation, model_graph.Carry)


class _Span(NamedTuple):
    """From the first to the last use of a variable, by their places."""

    first: int
    last: int
    layer: str
    is_state: bool
    only_reads: bool
    """Whether no layer that uses it assigns it."""


def _weights(operation: Any) -> set[int]:
    """Ids of an operation's weights, trained or frozen; its other variables are state."""
    if not isinstance(operation, keras.Layer):
        return set()
    # Private, but the only list of the weights that a frozen layer would train.
    layers = operation._flatten_layers()
    return {id(variable) for layer in layers for variable in layer._trainable_variables}


def _obstacle(
    node: Any,
    tensors: Sequence[Any],
    index: int,
    last_call: Mapping[int, int],
    real: Mapping[str, Sequence[tuple[str, int | None]]],
) -> str:
    """Why the tensors that are alive after a call cannot cross a cut; empty: they can."""
    for tensor in tensors:
        operation, _, place = tensor._keras_history
        own = operation is node.operation
        output = "its output" if own else f"the output of {operation.name!r}, which crosses it,"
        if last_call[id(operation)] > index:  # Keras would clone the later call as an input
            return f"the output of {operation.name!r} crosses it, and this layer is called again"
        if getattr(tensor, "_keras_mask", None) is not None:
            return f"a mask accompanies {output}".rstrip(",")
        assumed = tensor.dtype, len(tensor.shape)
        dtype, rank = real[operation.name][place] if operation.name in real else assumed
        if dtype != tensor.dtype:
            return f"{output} is {dtype}, but Keras assumes {tensor.dtype}"
        if rank != len(tensor.shape):
            return f"{output} has {rank} dimensions, but Keras assumes {len(tensor.shape)}"
    return ""


def _real_outputs(model: keras.Model) -> dict[str, list[tuple[str, int | None]]]:
    """Dtypes and ranks of the outputs of layers for which Keras may be wrong, by their names.

    For a ``Lambda``, or a layer with its own ``compute_output_shape``, Keras assumes the compute
    dtype and believes the shape. This function traces a model that has such layers; of layers that
    compute the same, it calls one.
    """
    unknown = [
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Lambda)
        or type(layer).compute_output_shape.__module__.partition(".")[0] != "keras"
    ]
    if not unknown:
        return {}
    layers = [*map(id, model.layers)]
    if _outputs.get(model, (None,))[0] == layers:
        return _outputs[model][1]
    result: dict[str, list[tuple[str, int | None]]] = {}
    keys = {id(layer): structural_keys.layer_key(layer) for layer in unknown}
    known: dict[Any, Any] = {}

    def watched(layer: Any, call: Any) -> Any:
        def recording(*args: Any, **kwargs: Any) -> Any:
            key = keys[id(layer)], _described((args, kwargs))
            made = known.get(key)
            if made is None:
                made = call(*args, **kwargs)
            else:
                made = tf.nest.map_structure(_placeholder, made)
            if None not in key and all(map(tf.is_symbolic_tensor, tf.nest.flatten(made))):
                known[key] = made
            result[layer.name] = [
                (tf.as_dtype(x.dtype).name, x.shape.rank) for x in tf.nest.flatten(made)
            ]
            return made

        return recording

    with intercepted(unknown, watched), _apart():
        tf.function(lambda x: model(x, training=False), autograph=False).get_concrete_function(
            model_graph.specs(model_graph.of(model), 2)
        )
    _outputs[model] = layers, result
    return result


def _described(arguments: Any) -> str | None:
    """Structure, shapes and dtypes of tensors, and other arguments; None: not known."""
    leaves = tf.nest.flatten(arguments)
    if not all(tf.is_symbolic_tensor(each) or each in (None, True, False) for each in leaves):
        return None
    return repr(
        tf.nest.map_structure(lambda x: (x.shape, x.dtype) if tf.is_tensor(x) else x, arguments)
    )


def _placeholder(tensor: tf.Tensor) -> tf.Tensor:
    return tf.compat.v1.placeholder(tensor.dtype, tensor.shape)


_outputs: weakref.WeakKeyDictionary[keras.Model, tuple[list[int], Any]]
_outputs = weakref.WeakKeyDictionary()
"""Model -> ids of its layers, and their real outputs: planning asks for them many times."""


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """In the block, calls of layers leave no losses and assignments where somebody looks at them.

    A model inside of another one may be in the middle of a call.
    """
    before = global_state.get_global_attribute(_CALL)
    global_state.set_global_attribute(_CALL, None)
    try:
        with keras.StatelessScope(collect_losses=True):
            yield
    finally:
        global_state.set_global_attribute(_CALL, before)


_CALL = "current_call_ctx"
"""Of ``keras/src/layers/layer.py``."""


def _check_names(model: keras.Model, names: Sequence[str]) -> None:
    """Raises a UserError unless the names are cut points, in order."""
    legal = [point.layer for point in cut_points(model)]
    for name in names:
        if name not in legal:
            raise UserError(
                f"parallel.cuts: {name!r}: {_illegal(model, name, legal)}",
                setting="parallel.cuts",
                value=name,
            )
    order = sorted(set(names), key=legal.index)
    if list(names) != order:
        raise SettingError(
            "parallel.cuts",
            repr(",".join(names)),
            f"must name each layer once, in the order of computation in the model {model.name!r}",
            f"parallel.cuts: {','.join(order)}",
        )


def _illegal(model: keras.Model, name: str, legal: list[str]) -> str:
    model = model_graph.opened(model)
    places = _places(model)
    # The name of a layer that is called several times means its last call.
    index = {place.layer: index for index, place in enumerate(places)}.get(name)
    if not legal:
        return f"the model {model.name!r} has no cut points; use parallel.stages: 1"
    if index is not None:
        before = [place.layer for place in places[:index] if not place.reason][-1:]
        after = [place.layer for place in places[index:] if not place.reason][:1]
        near = " or ".join(map(repr, before + after))
        problem = f"cannot be cut after this layer: {places[index].reason}"
        return f"the model {model.name!r} {problem}; cut after {near}"
    for layer in model.layers:
        # Private, but the only list of the layers inside a layer.
        if name in [inner.name for inner in layer._flatten_layers(include_self=False)]:
            near = " or ".join(map(repr, [layer.name] if layer.name in legal else legal[:3]))
            return (
                f"this layer is inside {layer.name!r}, and the model {model.name!r} can be cut "
                f"only between its own layers; cut after {near}"
            )
    near = ", ".join(map(repr, difflib.get_close_matches(name, legal, n=3, cutoff=0.4) or legal))
    return f"the model {model.name!r} has no such layer; it can be cut after {near}"


Fits = Callable[[int], np.ndarray]
"""Whether the part of a number may have the items from ``begin`` to before ``end``: booleans
``[end, begin]``, of ``[items + 1, items]``."""


class Balance:
    """The best divisions of a sequence, into any number of parts.

    Exact, in ``O(parts * items ** 2)``. The first cost decides; among the best divisions by that,
    the second one does, and so on. Among equal ones, later parts begin earlier.
    """

    def __init__(
        self,
        costs: Sequence[Sequence[float]],
        fits: Fits | None = None,
        sending: Sequence[float] = (),
    ):
        """Prepares the costs of all ranges of items.

        Args:
            costs: of each item.
            fits: which part may have which items; None: any.
            sending: what the first cost of a part grows by if it ends with the item, unless that is
                the last one.
        """
        self._fits = fits
        self._ranges = [
            _ranges(column, () if number else sending)
            for number, column in enumerate(zip(*costs, strict=True))
        ]
        self._rows = _rows(self._ranges[0], self._may([]))
        self._known: list[tuple[np.ndarray, np.ndarray]] = []
        """For the first cost: the rows so far."""

    def least(self, parts: int) -> float:
        """The least maximal first cost; infinite: no division fits."""
        while len(self._known) < parts:
            self._known.append(next(self._rows))
        return float(self._known[parts - 1][0][-1])

    def starts(self, parts: int) -> list[int] | None:
        """The first item of each part but the first; None: no division fits."""
        most, rows = self.least(parts), self._known[:parts]
        limits: list[tuple[np.ndarray, float]] = []
        for number, ranges in enumerate(self._ranges):
            if number:
                rows = list(itertools.islice(_rows(ranges, self._may(limits)), parts))
                most = float(rows[-1][0][-1])
            if most == math.inf:
                return None
            limits.append((ranges, most))
        found, end = [], len(self._ranges[0]) - 1
        for _, begins in rows[:0:-1]:
            end = int(begins[end])
            found.append(end)
        return found[::-1]

    def _may(self, limits: Sequence[tuple[np.ndarray, float]]) -> Fits | None:
        """The ranges that fit, and cost no more than the limits."""
        fits = self._fits
        if not limits:
            return fits
        cheap: np.ndarray = np.logical_and.reduce([ranges <= most for ranges, most in limits])
        return (lambda _: cheap) if fits is None else (lambda part: cheap & fits(part))


def balance(
    costs: Sequence[Sequence[float]],
    parts: int,
    fits: Fits | None = None,
    sending: Sequence[float] = (),
) -> list[int] | None:
    """The first item of each part but the first, see :class:`Balance`; None: no division fits.

    Args:
        parts: from 1 to ``len(costs)``.
    """
    return Balance(costs, fits, sending).starts(parts)


def _ranges(column: Sequence[float], sending: Sequence[float]) -> np.ndarray:
    """Costs of the items from ``begin`` to before ``end``, by end; otherwise infinite.

    The shape is ``[items + 1, items]``: NumPy finds the least of adjacent numbers much faster.
    """
    sums = np.array([0.0, *itertools.accumulate(column)])
    ends = np.zeros(len(sums))
    ends[1 : 1 + len(sending)] = sending
    size = len(sums) - 1
    costs = sums[:, None] - sums[None, :-1] + ends[:, None]
    places, begins = np.arange(size + 1)[:, None], np.arange(size)[None, :]
    found: np.ndarray = np.where(places > begins, costs, math.inf)
    return found


def _rows(ranges: np.ndarray, may: Fits | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For 1, 2, … parts: least maxima of the items before each end, and the last part's begin."""
    ends, size = np.arange(len(ranges)), ranges.shape[1]
    best = np.full(size, math.inf)
    best[0] = -math.inf  # no items, no parts
    costs, allowed, legal = np.empty_like(ranges), None, ranges
    for part in itertools.count():
        if may is not None and (found := may(part)) is not allowed:
            allowed, legal = found, np.where(found, ranges, math.inf)
        np.maximum(best[None, :], legal, out=costs)
        begins = costs.argmin(axis=1)
        row = costs[ends, begins]
        yield row, begins
        best = row[:-1]
