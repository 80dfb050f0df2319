"""Splits a model into the models of its stages.

A model can be cut where exactly one tensor is alive, so that a stage has one input and one output.
The name of a cut point is that of the layer before it. A nested model counts as one layer.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras

from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.trainer_module.models.stages import functional

Fits = Callable[[int, int, int], bool]
"""Whether the part of this number may have the items from ``begin`` to before ``end``."""


@dataclasses.dataclass(frozen=True)
class CutPoint:
    """The place after a call of a layer."""

    layer: str
    tensor: Any = dataclasses.field(repr=False)
    """Symbolic output of the layer: ``[batch, …]``."""
    size: int
    """Bytes of the call's outputs, for one example."""
    reason: str
    """Why the model cannot be cut here; empty: it can."""


def named_cuts(model: keras.Model, stages: int, cuts: str) -> list[str]:
    """The names in ``parallel.cuts``: the last layers of all stages but the last."""
    names = [name.strip() for name in cuts.split(",")]
    if len(names) + 1 != stages:
        raise SettingError(
            "parallel.cuts",
            repr(cuts),
            f"makes {len(names) + 1} stages, but parallel.stages is {stages}",
            f"{stages - 1} names, or parallel.stages: {len(names) + 1}",
        )
    _check_names(model, names)
    return names


def all_cuts(model: keras.Model, stages: int) -> list[str]:
    """The names of all cut points; empty for a model that stays whole."""
    if stages == 1 and functional.obstacle(model):
        return []
    names = [point.layer for point in cut_points(model)]
    if stages > len(names) + 1:
        raise SettingError(
            "parallel.stages",
            stages,
            f"is too many: the model {model.name!r} has {len(names)} cut points (places "
            "where a single tensor connects the two parts)",
            f"parallel.stages: {len(names) + 1} or fewer",
        )
    return names


def split(model: keras.Model, cuts: Sequence[str]) -> list[keras.Model]:
    """The models between the cuts; their chain is the model."""
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
    """The segments of a model, or of a stage, for recomputing activations.

    Their number is about the square root of the number of cut points, and their activations have
    about equal sizes. The memory of n layers is then of the order of the square root of n (Chen et
    al. 2016, "Training deep nets with sublinear memory cost", section 4.3). A model that cannot be
    cut is one segment.
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
    starts = balance(sizes, 1 + math.isqrt(len(legal))) or []
    return split(model, [places[legal[start - 1]].layer for start in starts])


def cut_points(model: keras.Model) -> list[CutPoint]:
    """The cut points of a model, in the order of computation.

    All later tensors depend on the tensor of a cut point alone. Input and output are no cut points,
    nor are places with weights used on both sides, or with a Keras mask, which accompanies a tensor
    from layer to layer but not from stage to stage.
    """
    problem = functional.obstacle(model)
    if problem:
        raise UserError(
            f"parallel.stages: the model {model.name!r} cannot be cut: {problem}; use a functional "
            "model with one input and one output (keras.Model(inputs, outputs)), a list with one "
            "model per stage, or parallel.stages: 1",
            setting="parallel.stages",
            value=model.name,
            suggestion="parallel.stages: 1",
        )
    return [place for place in _places(model) if not place.reason]


def _places(model: keras.Model) -> list[CutPoint]:
    """The places after all calls, in the order of computation."""
    nodes = functional.calls(model)
    last_use: dict[int, int] = {id(model.outputs[0]): len(nodes)}
    spans: dict[int, tuple[int, int, str]] = {}
    for index, node in enumerate(nodes):
        for tensor in node.input_tensors:
            last_use[id(tensor)] = max(index, last_use.get(id(tensor), 0))
        # By variable, to include weights that two layers share, or inside nested models.
        for variable in getattr(node.operation, "variables", ()):
            first = spans.get(id(variable), (index, index, ""))[0]
            spans[id(variable)] = (first, index, node.operation.name)
    last_call = {id(node.operation): index for index, node in enumerate(nodes)}
    dtypes = functional.dtypes(model)
    places: list[CutPoint] = []
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
            reason = f"it returns {len(alive)} tensors"
        elif shared:
            reason = f"both stages would use the weights of {shared[0]!r}"
        elif last_call[id(node.operation)] > index:
            reason = "it is called again later"  # and the name has to be unique
        elif getattr(tensor, "_keras_mask", None) is not None:
            reason = "a mask accompanies its output"
        elif dtypes.get(name, tensor.dtype) != tensor.dtype:
            reason = f"its output is {dtypes[name]}, but Keras assumes {tensor.dtype}"
        places.append(CutPoint(name, tensor, functional.call_bytes(node), reason))
    return places


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


def balance(
    costs: Sequence[Sequence[float]], parts: int, fits: Fits = lambda part, begin, end: True
) -> list[int] | None:
    """Divides a sequence into contiguous parts with the least maximal cost.

    Exact, by dynamic programming, in ``O(parts * len(costs) ** 2)``. Returns the first item of
    each part but the first; None: no division fits.

    Args:
        costs: of each item. The first cost decides; among the best divisions by that, the second
            one does, and so on.
        parts: from 1 to ``len(costs)``.
    """
    limits: list[tuple[list[float], float]] = []

    def may(part: int, begin: int, end: int) -> bool:
        cheap = all(sums[end] - sums[begin] <= most for sums, most in limits)
        return cheap and fits(part, begin, end)

    starts: list[int] = []
    for column in zip(*costs, strict=True):
        sums = [0.0, *itertools.accumulate(column)]
        most, starts = _least_maximum(sums, parts, may)
        if most == math.inf:
            return None
        limits.append((sums, most))
    return starts


def _least_maximum(sums: list[float], parts: int, may: Fits) -> tuple[float, list[int]]:
    """The least maximal cost, and the first items of the parts."""
    ends = range(1, len(sums))
    best = {(1, end): (sums[end] if may(0, 0, end) else math.inf, 0) for end in ends}
    for part in range(2, parts + 1):
        for end in range(part, len(sums)):
            best[part, end] = min(
                (
                    max(best[part - 1, begin][0], sums[end] - sums[begin])
                    if may(part - 1, begin, end)
                    else math.inf,
                    begin,
                )
                for begin in range(part - 1, end)
            )
    starts: list[int] = []
    end = len(sums) - 1
    for part in range(parts, 1, -1):
        end = best[part, end][1]
        starts.insert(0, end)
    return best[parts, len(sums) - 1][0], starts
