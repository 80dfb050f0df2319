"""Lists the operations of a graph with their costs.

Convolutions and matrix products count two floating-point operations for each multiplication with
addition. Any other operation counts one for each element that it reads or writes, whichever are
more, and none if it only moves values. The body of a loop counts once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from stagecraft.trainer_module.models.stages.operations import Operation

# fmt: off
MOVES = frozenset((
    "BatchToSpaceND", "BroadcastTo", "Cast", "ConcatV2", "Const", "DepthToSpace", "ExpandDims",
    "Fill", "GatherV2", "Identity", "IdentityN", "MirrorPad", "NoOp", "OnesLike", "Pack",
    "Pad", "PadV2", "Placeholder", "Range", "Rank", "ReadVariableOp", "Reshape",
    "ResourceGather", "Shape", "ShapeN", "Size", "Slice", "SpaceToBatchND", "SpaceToDepth",
    "Split", "SplitV", "Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose",
    "Unpack", "ZerosLike",
))
# fmt: on
"""Operations that compute nothing."""

# fmt: off
COPIES = frozenset((
    "BatchToSpaceND", "BroadcastTo", "Cast", "ConcatV2", "DepthToSpace", "GatherV2", "MirrorPad",
    "Pack", "Pad", "PadV2", "ResourceGather", "Slice", "SpaceToBatchND", "SpaceToDepth", "Split",
    "SplitV", "StridedSlice", "Tile", "Transpose", "Unpack",
))
# fmt: on
"""Of ``MOVES``, those that read and write all values of their outputs."""


_VIEWS = frozenset(("ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient"))
"""Operations whose output is the memory of their first input."""


class Kept(NamedTuple):
    """What the gradient of a graph takes, of one example."""

    inside: int
    """Bytes that the graph computes."""
    inputs: list[bool]
    """Which of the inputs."""
    outputs: list[bool]
    """Which of the outputs; their bytes are inside."""


def kept(graph: Any, taken: Iterable[Any], inputs: int, outputs: Iterable[Any]) -> Kept:
    """Sizes of what a gradient takes; views of one value count once.

    Args:
        taken: by the gradient. What depends neither on the inputs nor on random numbers, such as
            weights, counts not.
        inputs: number of the graph's first inputs that are data.
    """
    data = graph.inputs[:inputs]
    of_data = {each.ref() for each in data}
    for operation in graph.get_operations():  # each after those that it depends on
        is_drawn = "Random" in operation.type
        if is_drawn or any(each.ref() in of_data for each in operation.inputs):
            of_data |= {each.ref() for each in operation.outputs}
    values = {each.ref(): each for each in map(_whole, taken) if each.ref() in of_data}
    is_input = [values.pop(each.ref(), None) is not None for each in data]
    size = sum(elements(each.shape) * each.dtype.size for each in values.values())
    return Kept(size, is_input, [_whole(each).ref() in values for each in outputs])


def _whole(value: Any) -> Any:
    """The value that a value is a view of."""
    while value.op.type in _VIEWS:
        value = value.op.inputs[0]
    return value


def flops(listed: Iterable[Any]) -> int:
    """Floating-point operations of some operations, including the functions that they call."""
    return sum(_flops(operation) for operation in _called(listed))


def operations(graph: Any, weights: Collection[Any] = ()) -> Iterator[Operation]:
    """The operations that take time on an accelerator, for a batch of one example.

    Operations on whole numbers compute shapes, in general, and are left out.

    Args:
        weights: inputs of the graph that are weights.
    """
    of_weights = {(id(graph), each.op.name) for each in weights}
    for operation in _called(graph.get_operations()):
        names = [(id(each.op.graph), each.op.name) for each in operation.inputs]
        if operation.type in ("ReadVariableOp", "Const") or (
            names and of_weights.issuperset(names)
        ):
            of_weights.add((id(operation.graph), operation.name))
        outputs = [each for each in operation.outputs if each.dtype.is_floating]
        copies = operation.type in COPIES
        if not outputs or (operation.type in MOVES and not copies):
            continue
        written = _bytes(outputs)
        if (id(operation.graph), operation.name) in of_weights:
            yield Operation(0.0, 0.0, 2 * written)
        elif copies:
            yield Operation(0.0, 2 * written)
        else:
            pairs = [*zip(operation.inputs, names, strict=True)]
            given = [each for each, name in pairs if name not in of_weights]
            weights = [each for each, name in pairs if name in of_weights]
            yield Operation(
                _flops(operation),
                _bytes(given) + written,
                _bytes(weights),
                winograd=_is_small_convolution(operation),
            )


def _called(listed: Iterable[Any]) -> Iterator[Any]:
    """Some operations, and those of the functions that they call."""
    for operation in listed:
        names = [
            value.func.name for value in operation.node_def.attr.values() if value.HasField("func")
        ]
        for name in names:  # a call, a branch, a loop; Keras makes grouped convolutions one
            # Private, but no public way leads from a call to the called graph.
            yield from _called(operation.graph._get_function(name).graph.get_operations())
        if not names:
            yield operation


def _bytes(tensors: Sequence[Any]) -> int:
    """Bytes of the tensors of floating-point numbers among these."""
    floats = [each for each in tensors if each.dtype.is_floating]
    return sum(elements(each.shape) * each.dtype.size for each in floats)


def _is_small_convolution(operation: Any) -> bool:
    """Whether it is a convolution with a 3 x 3 filter, without stride or dilation."""
    if operation.type != "Conv2D":
        return False
    steps = [*operation.get_attr("strides"), *operation.get_attr("dilations")]
    return list(operation.inputs[1].shape[:2]) == [3, 3] and set(steps) == {1}


def _flops(operation: Any) -> int:
    """Floating-point operations of an operation that calls no other graph."""
    if operation.type in MOVES or not operation.outputs:
        return 0
    written = elements(operation.outputs[0].shape)
    shapes = [value.shape for value in operation.inputs]
    if operation.type == "MatMul":
        return 2 * written * size_of(shapes[0][0 if operation.get_attr("transpose_a") else 1])
    if operation.type in ("BatchMatMulV2", "BatchMatMulV3"):
        return 2 * written * size_of(shapes[0][-2 if operation.get_attr("adj_x") else -1])
    if operation.type == "Einsum":
        return 2 * written * _contracted(operation.get_attr("equation").decode(), shapes)
    if operation.type in ("Conv2D", "Conv3D"):
        return 2 * written * elements(shapes[1][:-1])
    if operation.type == "DepthwiseConv2dNative":
        return 2 * written * elements(shapes[1][:2])
    if operation.type in ("Conv2DBackpropInput", "Conv3DBackpropInputV2"):  # transposed forward
        return 2 * elements(shapes[2]) * elements(shapes[1][:-1])
    return max(written, *map(elements, shapes), 0)


def _contracted(equation: str, shapes: Sequence[Any]) -> int:
    """Number of products in an element of an einsum."""
    terms, result = equation.replace(" ", "").split("->")
    sizes: dict[str, int | None] = {}
    for term, shape in zip(terms.split(","), shapes, strict=True):
        before, _, after = term.partition("...")
        sizes.update(zip(before, shape[: len(before)], strict=True))
        sizes.update(zip(after, shape[len(shape) - len(after) :], strict=True))
    contracted = [size_of(size) for label, size in sizes.items() if label not in result]
    return math.prod(contracted)


def elements(shape: Any) -> int:
    """Number of elements of a shape; unknown dimensions count as 1."""
    return math.prod(map(size_of, shape)) if shape.rank is not None else 1


def size_of(dimension: int | None) -> int:
    """A dimension; 1 if it is unknown."""
    return 1 if dimension is None else dimension
