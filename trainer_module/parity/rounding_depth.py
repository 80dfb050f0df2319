"""Counts roundings and non-smooth operations on a gradient's way; see :mod:`.tolerances`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models import model_graph
from stagecraft.trainer_module.settings import TrainingSettings

_NONSMOOTH_OPS = {"Relu", "Relu6", "LeakyRelu", "Abs", "MaxPool", "MaxPoolV2", "MaxPool3D"}
"""TensorFlow's operations with a discontinuous derivative, which no smooth layer contains."""


def rounding_depths(model: keras.Model, settings: TrainingSettings) -> dict[str, float]:
    """Rounding depth n of each trainable variable, by its path."""
    outer = _given(model)
    layers = list(_layers(model, outer))
    if settings.parallel.precision.startswith("mixed"):
        # Each layer's result is rounded once per direction, the weight's gradient once.
        roundings = 2 * len(layers) + 1
        return {variable.path: float(roundings) for variable in model.trainable_variables}
    size = settings.train.batch_size
    of_layers = sum(2 * _forward(layer, shape, size) for layer, shape in layers)
    # Weights of a model itself, outside of its layers, have the model's positions.
    return {
        variable.path: float(of_layers + size * math.prod(shape[:-1]))
        for layer, shape in [(model, _output(model) or outer), *layers]
        for variable in layer.trainable_variables
    }


def count_nonsmooth_ops(model: keras.Model, settings: TrainingSettings) -> int:
    """K: the known layers with a discontinuous derivative; 0 in 16 bits."""
    if settings.parallel.precision.startswith("mixed"):
        return 0
    nonsmooth = (
        keras.layers.ReLU,
        keras.layers.LeakyReLU,
        keras.layers.MaxPooling2D,
        keras.layers.GlobalMaxPooling2D,
    )
    layers = sum(
        isinstance(layer, nonsmooth)
        or getattr(layer, "activation", keras.activations.linear) is not keras.activations.linear
        for layer, _ in _layers(model, ())
    )
    # A model's own code may contain such operations, too.
    operations = sum(node.op in _NONSMOOTH_OPS for node in forward_ops(model))
    return max(layers, operations)


def _layers(layer: Any, outer: tuple[int, ...]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """The layers without inner layers or with weights of their own, and their outputs' shapes."""
    shape = _output(layer) or outer
    if isinstance(layer, keras.Model):
        inner = layer.layers
    else:  # private, but the only list of a layer's inner layers
        inner = list(layer._flatten_layers(include_self=False, recursive=False))
    known = {id(variable) for part in inner for variable in part.variables}
    own = not inner or any(id(variable) not in known for variable in layer.variables)
    ignored = keras.layers.InputLayer if not inner else keras.Model
    if own and not isinstance(layer, ignored):
        yield layer, shape
    for part in inner:
        yield from _layers(part, shape)


def _forward(layer: Any, shape: tuple[int, ...], batch: int) -> float:
    """Number of terms of the sums that a layer computes."""
    if isinstance(layer, keras.layers.BatchNormalization):
        return batch * math.prod(shape[:-1])  # mean and variance
    kernel = getattr(layer, "kernel", None)
    if kernel is not None:
        return math.prod(kernel.shape[:-1])
    shape_in, shape_out = _shape(layer, "input"), _shape(layer, "output")
    if shape_in and shape_out and len(shape_out) < len(shape_in):
        return max(1, math.prod(shape_in) // max(1, math.prod(shape_out)))  # global pooling
    return 1


def _output(layer: Any) -> tuple[int, ...]:
    return _shape(layer, "output") or _shape(layer, "input")


def _shape(layer: Any, side: str) -> tuple[int, ...]:
    """Shape without the batch; () if a layer has several, or an unknown one."""
    try:
        shape = getattr(layer, side).shape
    except (AttributeError, ValueError):
        return ()
    return tuple(size or 1 for size in shape[1:])


def _given(model: keras.Model) -> tuple[int, ...]:
    """Shape of the largest input, without the batch."""
    shapes = [
        spec.shape.as_list()[1:]
        for spec in tf.nest.flatten(model_graph.specs(model_graph.of(model), 1))
    ]
    return tuple(max(shapes, key=math.prod))


def forward_ops(model: keras.Model, floats: str | None = "float32") -> list[Any]:
    """The operations of a training's forward pass, as ``NodeDef`` protocol buffers.

    ``floats``: dtype of the inputs that are floats; None: the model's own.
    """
    specs = tf.nest.map_structure(
        lambda spec: (
            tf.TensorSpec(spec.shape, floats) if floats and spec.dtype.is_floating else spec
        ),
        model_graph.specs(model_graph.of(model), 2),
    )
    function = tf.function(lambda given: model(given, training=True), autograph=False)
    graph = function.get_concrete_function(specs).graph.as_graph_def()
    return [*graph.node, *(node for part in graph.library.function for node in part.node_def)]
