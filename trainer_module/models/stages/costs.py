"""What a model costs: parameters, operations, bytes; and costs divided evenly.

Floating-point operations are read off the traced graph of one example: two for each multiplication
with addition of a convolution or a matrix product, one for each element that any other operation
reads or writes, whichever are more, and none where values are only moved. A model's own layers
count as well as Keras's; the body of a loop counts once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.models.layers.floatx import floatx
from stagecraft.trainer_module.models.stages import functional


class Times(NamedTuple):
    """Of one example through a part of a model: seconds, or floating-point operations."""

    forward: float
    backward: float


@dataclasses.dataclass(frozen=True)
class StageCost:
    """Of one stage; all of it for one example, forward."""

    first: str
    """The first layer, and"""
    last: str
    """the last one."""
    layers: int
    parameters: int
    trainable: int
    """Of the parameters, those that training changes."""
    frozen: int
    """Of the parameters, those of layers with ``trainable = False``."""
    flops: int
    input_bytes: int
    """Of what comes from the stage before."""
    activation_bytes: int
    """Of what all layers give, which about is what a backward pass needs."""
    output_bytes: int
    """Of what goes on to the next stage."""
    kind: str
    """Equal for stages that are computed by the same operations on the same shapes, and back."""


def stage_costs(stages: Sequence[keras.Model], inputs: Any) -> list[StageCost]:
    """The costs of models that follow one another.

    Args:
        stages: built, of one input and one output each; functional or subclassed.
        inputs: of the first: anything with a shape ``[batch, …]`` and a dtype.
    """
    costs = []
    for stage in stages:
        graph, outputs = _trace(stage, inputs)
        names = _layer_names(stage)
        costs.append(
            StageCost(
                first=names[0],
                last=names[-1],
                layers=len(names),
                parameters=stage.count_params(),
                trainable=_count(stage.trainable_variables),
                frozen=_frozen(stage),
                flops=_graph_flops(graph),
                input_bytes=functional.tensor_bytes(inputs),
                activation_bytes=_activation_bytes(stage, graph),
                output_bytes=functional.tensor_bytes(outputs),
                kind=_kind(graph, stage.trainable_variables),
            )
        )
        inputs = outputs
    return costs


Fits = Callable[[int, int, int], bool]
"""Whether a part, by its number, may have the items from the first place to before the second."""


def balance(
    costs: Sequence[Sequence[float]], parts: int, fits: Fits = lambda part, begin, end: True
) -> list[int] | None:
    """Divides a sequence into contiguous parts of which the costliest costs least.

    Exact, by dynamic programming, in ``O(parts * len(costs) ** 2)``.

    Args:
        costs: of each item: by the first cost the parts are judged; among the best divisions by
            that, the second decides, and so on.
        parts: from 1 to ``len(costs)``.
        fits: which parts there may be.

    Returns:
        Where each part but the first begins; None: no division fits.
    """
    limits: list[tuple[list[float], float]] = []

    def may(part: int, begin: int, end: int) -> bool:
        cheap = all(sums[end] - sums[begin] <= most for sums, most in limits)
        return cheap and fits(part, begin, end)

    starts: list[int] = []
    for column in zip(*costs, strict=True):
        sums: list[float] = [0]
        for cost in column:
            sums.append(sums[-1] + cost)
        most, starts = _least_maximum(sums, parts, may)
        if most == math.inf:
            return None
        limits.append((sums, most))
    return starts


def _least_maximum(sums: list[float], parts: int, may: Fits) -> tuple[float, list[int]]:
    """The least possible cost of the costliest part, and where parts begin for that."""
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


# fmt: off
_MOVES = frozenset((
    "BatchToSpaceND", "BroadcastTo", "Cast", "ConcatV2", "Const", "DepthToSpace", "ExpandDims",
    "Fill", "GatherV2", "Identity", "IdentityN", "MirrorPad", "NoOp", "OnesLike", "Pack",
    "Pad", "PadV2", "Placeholder", "Range", "Rank", "ReadVariableOp", "Reshape",
    "ResourceGather", "Shape", "ShapeN", "Size", "Slice", "SpaceToBatchND", "SpaceToDepth",
    "Split", "SplitV", "Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose",
    "Unpack", "ZerosLike",
))
# fmt: on
"""Operations that calculate nothing."""


def _trace(model: keras.Model, inputs: Any) -> tuple[Any, tf.TensorSpec]:
    """The graph of one example in inference, and what it gives."""
    spec = tf.TensorSpec([1, *map(_size, inputs.shape[1:])], inputs.dtype)
    function = tf.function(lambda values: model(values, training=False), autograph=False)
    in_float64 = any(layer.compute_dtype == "float64" for layer in model.layers or [model])
    with floatx("float64" if in_float64 else keras.config.floatx()):
        concrete = function.get_concrete_function(spec)
    return concrete.graph, concrete.structured_outputs


def _layer_names(model: keras.Model) -> list[str]:
    """In the order of computation where that can be seen, else in that of construction."""
    if functional.obstacle(model):
        return [layer.name for layer in model.layers] or [model.name]
    called = [node.operation for node in functional.calls(model)[1:]]
    inputs = keras.layers.InputLayer
    return list(dict.fromkeys(each.name for each in called if not isinstance(each, inputs)))


def _count(variables: Sequence[Any]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


def _frozen(model: keras.Model) -> int:
    """Parameters of layers with ``trainable = False``; statistics of the others do not count."""
    # Private, but the only list of the layers inside of layers.
    layers = [layer for layer in model._flatten_layers() if not layer.trainable]
    variables = {id(each): each for layer in layers for each in layer.variables}
    return _count(list(variables.values()))


def _activation_bytes(model: keras.Model, graph: Any) -> int:
    """Of a model whose layers cannot be seen, all that its graph computes: an upper bound."""
    if not functional.obstacle(model):
        return functional.activation_bytes(model)
    return sum(
        _elements(output.shape) * output.dtype.size
        for operation in graph.get_operations()
        if operation.type not in _MOVES
        for output in operation.outputs
    )


def _kind(graph: Any, trained: Sequence[Any]) -> str:
    """Digest of the operations, their shapes and attributes, and what is trained: no names."""
    lines = [["trained", *(str(tuple(variable.shape)) for variable in trained)]]
    for operation in graph.get_operations():
        attributes = (
            f"{name}={value}"
            for name, value in operation.node_def.attr.items()
            if not (name.startswith("_") or name in _NAMING or value.HasField("func"))
        )
        shapes = (str(value.shape) for value in (*operation.inputs, *operation.outputs))
        lines.append([operation.type, *shapes, *sorted(attributes)])
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


_NAMING = ("shared_name", "container", "value")
"""Attributes that say what something is called; values of constants are left out too."""


def _graph_flops(graph: Any) -> int:
    return sum(_operation_flops(operation) for operation in graph.get_operations())


def _operation_flops(operation: Any) -> int:
    functions = [
        value.func.name for value in operation.node_def.attr.values() if value.HasField("func")
    ]
    if functions:  # a call, a branch, a loop; Keras makes grouped convolutions one
        # Private, but public TensorFlow gives no way from a call to the graph that is called.
        return sum(_graph_flops(operation.graph._get_function(name).graph) for name in functions)
    if operation.type in _MOVES or not operation.outputs:
        return 0
    written = _elements(operation.outputs[0].shape)
    shapes = [value.shape for value in operation.inputs]
    if operation.type == "MatMul":
        return 2 * written * _size(shapes[0][0 if operation.get_attr("transpose_a") else 1])
    if operation.type in ("BatchMatMulV2", "BatchMatMulV3"):
        return 2 * written * _size(shapes[0][-2 if operation.get_attr("adj_x") else -1])
    if operation.type == "Einsum":
        return 2 * written * _contracted(operation.get_attr("equation").decode(), shapes)
    if operation.type in ("Conv2D", "Conv3D"):
        return 2 * written * _elements(shapes[1][:-1])
    if operation.type == "DepthwiseConv2dNative":
        return 2 * written * _elements(shapes[1][:2])
    if operation.type in ("Conv2DBackpropInput", "Conv3DBackpropInputV2"):  # transposed forward
        return 2 * _elements(shapes[2]) * _elements(shapes[1][:-1])
    return max(written, *map(_elements, shapes), 0)


def _contracted(equation: str, shapes: Sequence[Any]) -> int:
    """How many products make up an element of an einsum."""
    terms, result = equation.replace(" ", "").split("->")
    sizes: dict[str, int | None] = {}
    for term, shape in zip(terms.split(","), shapes, strict=True):
        before, _, after = term.partition("...")
        sizes.update(zip(before, shape[: len(before)], strict=True))
        sizes.update(zip(after, shape[len(shape) - len(after) :], strict=True))
    contracted = [_size(size) for label, size in sizes.items() if label not in result]
    return math.prod(contracted)


def _elements(shape: Any) -> int:
    return math.prod(map(_size, shape)) if shape.rank is not None else 1


def _size(dimension: int | None) -> int:
    return 1 if dimension is None else dimension
