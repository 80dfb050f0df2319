"""Counts the floating-point operations of a traced graph.

Convolutions and matrix products count two operations for each multiplication with addition. Any
other operation counts one for each element that it reads or writes, whichever are more, and none if
it only moves values. The body of a loop counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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


def graph_flops(graph: Any) -> int:
    """Operations of a graph, including the functions that it calls."""
    return sum(_operation_flops(operation) for operation in graph.get_operations())


def _operation_flops(operation: Any) -> int:
    functions = [
        value.func.name for value in operation.node_def.attr.values() if value.HasField("func")
    ]
    if functions:  # a call, a branch, a loop; Keras makes grouped convolutions one
        # Private, but no public way leads from a call to the called graph.
        return sum(graph_flops(operation.graph._get_function(name).graph) for name in functions)
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
