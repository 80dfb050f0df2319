"""From one model to the models of its stages.

A model can be cut where exactly one tensor is alive, so that a stage has one input and one output.
Such a cut point bears the name of the layer before it. Nested models count as one layer.
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
from stagecraft.trainer_module.models.stages import costs, functional


@dataclasses.dataclass(frozen=True)
class CutPoint:
    """A place where a model can be cut."""

    layer: str
    """The last layer before it."""
    tensor: Any = dataclasses.field(repr=False)
    """Its output, symbolic: ``[batch, …]``."""


def named_cuts(model: keras.Model, stages: int, cuts: str) -> list[str]:
    """The names in ``parallel.cuts``: of the layers that the stages but the last end with.

    Args:
        model: built.
        stages: one more than there are names.
        cuts: comma-separated.

    Raises:
        UserError: another number of stages, a cut that is not possible, a model that cannot be cut.
    """
    names = [name.strip() for name in cuts.split(",")]
    if len(names) + 1 != stages:
        raise UserError(
            f"parallel.cuts: {cuts!r} makes {len(names) + 1} stages, but parallel.stages is "
            f"{stages}; name {stages - 1} layers, or set stages: {len(names) + 1}"
        )
    _check_names(model, names)
    return names


def all_cuts(model: keras.Model, stages: int) -> list[str]:
    """The names of all cut points; of a model that stays whole, none.

    Args:
        model: built.
        stages: 1 or more.

    Raises:
        UserError: more stages than there can be, or a model that cannot be cut.
    """
    if stages == 1 and functional.obstacle(model):
        return []
    names = [point.layer for point in cut_points(model)]
    if stages > len(names) + 1:
        raise UserError(
            f"parallel.stages: {stages}, but {model.name} has {len(names)} cut points, places "
            f"where one tensor is alive; set stages: {len(names) + 1} or fewer"
        )
    return names


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
    if functional.obstacle(model):
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
    starts = costs.balance(sizes, 1 + math.isqrt(len(legal))) or []
    return split(model, [places[legal[start - 1]].layer for start in starts])


def cut_points(model: keras.Model) -> list[CutPoint]:
    """Where a model can be cut, in the order of computation.

    The tensors that everything behind them depends on alone. Neither the input nor the output is
    one, nor is a place with weights used on both sides, or with a Keras mask, which goes with a
    tensor from layer to layer but not from stage to stage.

    Raises:
        UserError: a subclassed model, or one of several inputs or outputs.
    """
    problem = functional.obstacle(model)
    if problem:
        raise UserError(
            f"parallel.stages: {model.name} cannot be cut: {problem}; give a functional model of "
            "one input and one output, keras.Model(inputs, outputs), or a list of models, one for "
            "each stage, or set stages: 1"
        )
    return [CutPoint(place.layer, place.tensor) for place in _places(model) if not place.reason]


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
    nodes = functional.calls(model)
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
    given = functional.dtypes(model)
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
        elif given.get(name, tensor.dtype) != tensor.dtype:
            reason = f"it gives {given[name]}, and Keras takes it for {tensor.dtype}"
        places.append(_Place(name, tensor, functional.call_bytes(node), reason))
    return places


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
