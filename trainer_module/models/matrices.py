"""How the kernels of a model are matrices, for optimizers of matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from stagecraft.trainer_module.models import model_graph
from stagecraft.trainer_module.models.variable_patterns import is_kernel, is_of_experts, matches

_MARK = "stagecraft_matrix"


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Axes of a kernel that are rows, columns, or neither; the others are of its inputs."""

    outputs: tuple[int, ...]
    """Axes of the outputs, such as the last one of a convolution ``[height, width, in, out]``."""
    separate: tuple[int, ...] = ()
    """Axes along which each index has a matrix of its own."""
    feeds_output: bool = False
    """Whether the layer is an output layer of the model."""


def mark(model: keras.Model) -> None:
    """Notes the matrix of each weight in the weight; :func:`of` returns it."""
    last = _output_weights(model)
    for layer in model._flatten_layers():
        for variable in layer._trainable_variables:
            found = _read(layer, variable)
            if found is not None and id(variable) in last:
                found = dataclasses.replace(found, feeds_output=True)
            setattr(variable, _MARK, found)


def copy(variable: keras.Variable, other: keras.Variable) -> None:
    """Notes the matrix of a weight in a copy of the weight."""
    if hasattr(variable, _MARK):
        setattr(other, _MARK, getattr(variable, _MARK))


def of(variable: keras.Variable) -> Matrix | None:
    """The matrix of a weight; None: the weight is no kernel, or its kernel is no matrix.

    If the weight belongs to no marked model, the last axis of a kernel is that of the outputs.
    """
    if hasattr(variable, _MARK):
        found: Matrix | None = getattr(variable, _MARK)
        return found
    return _by_name(variable)


def excluded(weight: keras.Variable, patterns: Sequence[str] | None) -> bool:
    """Whether an optimizer of matrices leaves a weight to another optimizer.

    Args:
        patterns: regular expressions for the paths of excluded kernels; None: the kernels of
            output layers are excluded.
    """
    matrix = of(weight)
    if matrix is None:
        return True
    return matrix.feeds_output if patterns is None else matches(patterns, weight.path)


def _read(layer: Any, variable: keras.Variable) -> Matrix | None:
    layers = keras.layers
    if variable.name != "kernel":
        return _by_name(variable)
    if isinstance(layer, (layers.DepthwiseConv1D, layers.DepthwiseConv2D)):
        return None
    transposed = (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose)
    if isinstance(layer, transposed):
        return Matrix(outputs=(len(variable.shape) - 2,))
    if isinstance(layer, layers.EinsumDense):
        return _of_equation(layer.equation)
    return _by_name(variable)


def _by_name(variable: keras.Variable) -> Matrix | None:
    # The filters of a depthwise kernel each have a single input channel: there is no matrix.
    if not is_kernel(variable) or "depthwise" in variable.name or len(variable.shape) < 2:
        return None
    separate = (0,) if is_of_experts(variable) else ()
    return Matrix(outputs=(len(variable.shape) - 1,), separate=separate)


def _of_equation(equation: str) -> Matrix | None:
    """The matrix of the second operand of ``abc,cde->abde``."""
    operands, _, result = equation.replace(" ", "").replace("...", "").partition("->")
    given, _, kernel = operands.partition(",")
    outputs = tuple(axis for axis, letter in enumerate(kernel) if letter not in given)
    separate = tuple(
        axis for axis, letter in enumerate(kernel) if letter in given and letter in result
    )
    if not outputs or len(outputs) + len(separate) == len(kernel):
        return None
    return Matrix(outputs, separate)


def _output_weights(layer: Any) -> set[int]:
    """Ids of weights whose products reach an output through no other matrix of weights."""
    if isinstance(layer, keras.Model) and not model_graph.obstacle(layer):
        found: set[int] = set()
        for operation in _before_outputs(layer):
            found |= _output_weights(operation)
        return found
    inner = layer._flatten_layers(include_self=False, recursive=False)
    for child in reversed(list(inner)):  # the best guess where the graph is not visible
        if _has_matrices(child):
            return _output_weights(child)
    return {id(variable) for variable in layer._trainable_variables}


def _before_outputs(model: keras.Model) -> Iterator[Any]:
    """The last layers with matrices on the ways to the outputs."""
    stack, seen = list(model.outputs), set()
    while stack:
        tensor = stack.pop()
        operation, node_index, _ = tensor._keras_history
        node = operation._inbound_nodes[node_index]
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(operation, keras.Layer) and _has_matrices(operation):
            yield operation
        elif not any(tensor is each for each in model.inputs):
            stack += node.input_tensors


def _has_matrices(layer: Any) -> bool:
    """Whether a layer has weights of two or more dimensions, such as kernels or embeddings."""
    layers = layer._flatten_layers()
    return any(len(v.shape) > 1 for each in layers for v in each._trainable_variables)
