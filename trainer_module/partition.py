"""From one model to the models of its stages.

A model can be cut where exactly one tensor is alive, so that a stage has one input and one output.
Such a cut point bears the name of the layer before it. Nested models count as one layer.

Where nobody says otherwise, the cuts are those for which the stage with the most floating-point
operations has the fewest: a pipeline goes at the pace of its slowest stage. Among cuts that are
equal in this, the largest stage by parameters is the smallest, which is what its device has to
hold several times (weights, gradients, the optimizer's slots).
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections.abc import Sequence
from typing import Any

import keras

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import costs


@dataclasses.dataclass(frozen=True)
class CutPoint:
    """A place where a model can be cut."""

    layer: str
    """The last layer before it."""
    tensor: Any = dataclasses.field(repr=False)
    """Its output, symbolic: ``[batch, …]``."""


def choose_cuts(model: keras.Model, stages: int, cuts: str = "auto") -> list[str]:
    """The names of the layers that the stages but the last end with.

    Args:
        model: built.
        stages: 1 or more.
        cuts: names, comma-separated, or ``auto``.

    Raises:
        UserError: stages that are not one more than the cuts, or more than there can be; a cut
            that is not possible; a model that cannot be cut.
    """
    if cuts != "auto":
        names = [name.strip() for name in cuts.split(",")]
        if len(names) + 1 != stages:
            raise UserError(
                f"parallel.cuts: {cuts!r} makes {len(names) + 1} stages, but parallel.stages is "
                f"{stages}; name {stages - 1} layers, or set stages: {len(names) + 1}"
            )
        _check_names(model, names)
        return names
    if stages == 1:
        return []
    names = [point.layer for point in cut_points(model)]
    if stages > len(names) + 1:
        raise UserError(
            f"parallel.stages: {stages}, but {model.name} has {len(names)} cut points, places "
            f"where one tensor is alive; set stages: {len(names) + 1} or fewer"
        )
    pieces = costs.stage_costs(split(model, names), model.inputs[0])
    starts = costs.balance([(piece.flops, piece.parameters) for piece in pieces], stages)
    return [names[start - 1] for start in starts]


def split(model: keras.Model, cuts: Sequence[str]) -> list[keras.Model]:
    """The models between the cuts; one after the other they are the model.

    Layers and variables are the model's own, with their paths, each in one of the parts.

    Args:
        model: built; functional unless there are no cuts.
        cuts: names of cut points, in order.

    Raises:
        UserError: a cut that is not possible, or a model that cannot be cut.
    """
    if not cuts:
        return [model]
    _check_names(model, cuts)
    by_name = {point.layer: point.tensor for point in cut_points(model)}
    tensors = [model.inputs[0], *(by_name[name] for name in cuts), model.outputs[0]]
    return [
        keras.Model(inputs, outputs, name=f"{model.name}_stage{index}")
        for index, (inputs, outputs) in enumerate(itertools.pairwise(tensors))
    ]


def segments(model: keras.Model) -> list[keras.Model]:
    """The parts of a model, or of a stage, whose activations are to be computed again.

    About as many as the square root of the number of cut points, equal in the bytes of their
    activations: the memory of n layers is then of the order of the square root of n (Chen et al.
    2016, "Training deep nets with sublinear memory cost", section 4.3).

    Returns:
        The model itself where it cannot be cut; else as ``split``.
    """
    if _why_not_functional(model):
        return [model]
    places = _places(model)
    legal = [index for index, place in enumerate(places) if not place.reason]
    if not legal:
        return [model]
    bounds = [0, *(index + 1 for index in legal), len(places)]
    sizes = [
        (sum(place.size for place in places[begin:end]),)
        for begin, end in itertools.pairwise(bounds)
    ]
    starts = costs.balance(sizes, 1 + math.isqrt(len(legal)))
    return split(model, [places[legal[start - 1]].layer for start in starts])


def cut_points(model: keras.Model) -> list[CutPoint]:
    """Where a model can be cut, in the order of computation.

    The tensors that everything behind them depends on alone. Neither the input nor the output is
    one, nor is a place with weights used on both sides, or with a Keras mask, which goes with a
    tensor from layer to layer but not from stage to stage.

    Raises:
        UserError: a subclassed model, or one of several inputs or outputs.
    """
    problem = _why_not_functional(model)
    if problem:
        raise UserError(
            f"parallel.stages: {model.name} cannot be cut: {problem}; give a functional model of "
            "one input and one output, keras.Model(inputs, outputs), or a list of models, one for "
            "each stage, or set stages: 1"
        )
    return [CutPoint(place.layer, place.tensor) for place in _places(model) if not place.reason]


def _why_not_functional(model: keras.Model) -> str:
    # A functional or sequential model runs its graph with Keras's own `call`; one that has another
    # need not run the graph at all.
    of_keras = type(model).call.__module__.split(".")[0] == "keras"
    if not of_keras or not getattr(model, "inputs", None):
        return f"{type(model).__name__} is a subclassed model, whose inside cannot be seen"
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        return f"it has {len(model.inputs)} inputs and {len(model.outputs)} outputs"
    return ""


@dataclasses.dataclass(frozen=True)
class _Place:
    """What is behind one call of a layer."""

    layer: str
    tensor: Any
    size: int
    """Bytes of what the call gives, for one example."""
    reason: str
    """Why the model cannot be cut here; empty where it can."""


def _places(model: keras.Model) -> list[_Place]:
    """The places behind all calls, in the order of computation."""
    nodes = _calls(model)
    last_use: dict[int, int] = {id(model.outputs[0]): len(nodes)}
    spans: dict[int, tuple[int, int, str]] = {}
    for index, node in enumerate(nodes):
        for tensor in node.input_tensors:
            last_use[id(tensor)] = max(index, last_use.get(id(tensor), 0))
        # By variable, so that weights of two layers, or inside nested models, are seen too.
        for variable in getattr(node.operation, "variables", ()):
            first = spans.get(id(variable), (index, index, ""))[0]
            spans[id(variable)] = (first, index, node.operation.name)
    last_call = {id(node.operation): index for index, node in enumerate(nodes)}
    places: list[_Place] = []
    alive: dict[int, tuple[int, str]] = {}
    for index, node in enumerate(nodes):
        name = node.operation.name
        alive.update({id(tensor): (index, name) for tensor in node.outputs})
        alive = {key: value for key, value in alive.items() if last_use.get(key, -1) > index}
        others = [other for born, other in alive.values() if born != index]
        shared = [other for first, last, other in spans.values() if first <= index < last]
        tensor = next((tensor for tensor in node.outputs if id(tensor) in alive), node.outputs[0])
        reason = ""
        if index == 0:
            reason = "it is the model's input"
        elif index == len(nodes) - 1:
            reason = "it is the model's output"
        elif others:
            reason = f"a skip connection from {others[0]!r} crosses it"
        elif len(alive) > 1:
            reason = f"it gives {len(alive)} tensors"
        elif shared:
            reason = f"{shared[0]!r} has weights that are used on both sides"
        elif last_call[id(node.operation)] > index:
            reason = "it is called again behind this"  # and a name is to mean one place
        elif getattr(tensor, "_keras_mask", None) is not None:
            reason = "a mask goes with its output"
        places.append(_Place(name, tensor, _call_bytes(node), reason))
    return places


def _calls(model: keras.Model) -> list[Any]:
    """The nodes of a model's graph, each after those it depends on; the input's is the first."""
    # Private: Keras shows a model's layers, but not which tensors go from one to the next.
    order: dict[int, Any] = {}
    stack = [(model.outputs[0], False)]
    while stack:
        tensor, done = stack.pop()
        operation, node_index, _ = tensor._keras_history
        node = operation._inbound_nodes[node_index]
        if id(node) in order:
            continue
        if done:
            order[id(node)] = node
            continue
        stack.append((tensor, True))
        if tensor is not model.inputs[0]:
            stack += [(value, False) for value in reversed(node.input_tensors)]
    return list(order.values())


def _call_bytes(node: Any) -> int:
    inner = node.operation
    if isinstance(inner, keras.Model) and not _why_not_functional(inner):
        return sum(place.size for place in _places(inner))
    return sum(map(costs.tensor_bytes, node.outputs))


def _check_names(model: keras.Model, names: Sequence[str]) -> None:
    """Raises a UserError unless the names are those of cut points, in order."""
    legal = [point.layer for point in cut_points(model)]
    for name in names:
        if name not in legal:
            raise UserError(f"parallel.cuts: {name!r}: {_why_illegal(model, name, legal)}")
    order = sorted(set(names), key=legal.index)
    if list(names) != order:
        raise UserError(
            f"parallel.cuts: {','.join(names)!r} are not in the order in which {model.name} "
            f"computes them, each once; set cuts: {','.join(order)}"
        )


def _why_illegal(model: keras.Model, name: str, legal: list[str]) -> str:
    places = _places(model)
    # A layer that is called several times is meant by its last call.
    index = {place.layer: index for index, place in enumerate(places)}.get(name)
    if not legal:
        return f"{model.name} has no cut points; set stages: 1"
    if index is not None:
        before = [place.layer for place in places[:index] if not place.reason][-1:]
        behind = [place.layer for place in places[index:] if not place.reason][:1]
        near = " or ".join(map(repr, before + behind))
        return f"{model.name} cannot be cut behind this layer: {places[index].reason}; take {near}"
    for layer in model.layers:
        # Private, but the only list of the layers inside a layer.
        if name in [inner.name for inner in layer._flatten_layers(include_self=False)]:
            return f"it is inside {layer.name!r}, which counts as one layer of {model.name}"
    near = ", ".join(map(repr, difflib.get_close_matches(name, legal, n=3, cutoff=0.4) or legal))
    return f"{model.name} has no such layer; it can be cut behind {near}"
