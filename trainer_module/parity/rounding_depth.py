"""How many additions a gradient goes through, read off the model; see :mod:`criteria`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import keras

from stagecraft.schemas import features
from stagecraft.trainer_module.parity import graph
from stagecraft.trainer_module.settings import TrainingSettings

_JUMPS = {"Relu", "Relu6", "LeakyRelu", "Abs", "MaxPool", "MaxPoolV2", "MaxPool3D"}
"""TensorFlow's operations whose derivative jumps, and which no other layer has in it."""


def lengths(model: keras.Model, settings: TrainingSettings) -> dict[str, float]:
    """Variable path -> n, for every trainable variable.

    Args:
        model: as :func:`stagecraft.trainer_module.models.assemble.assemble` builds it.
        settings: its batch size and precision.
    """
    parts = list(_parts(model, features.IMAGE_SHAPE))
    if settings.parallel.precision.startswith("mixed"):
        # Each layer's result is rounded once forward and once backward, the weight's gradient once.
        roundings = 2 * len(parts) + 1
        return {variable.path: float(roundings) for variable in model.trainable_variables}
    size = settings.train.batch_size
    on_the_way = sum(2 * _forward(layer, shape, size) for layer, shape in parts)
    # Weights that belong to a model itself, in no layer of it, have the model's positions.
    return {
        variable.path: float(on_the_way + size * math.prod(shape[:-1]))
        for layer, shape in [(model, _output(model) or features.IMAGE_SHAPE), *parts]
        for variable in layer.trainable_variables
    }


def kinks(model: keras.Model, settings: TrainingSettings) -> int:
    """K: layers whose derivative jumps, as far as they can be told; in 16 bits 0."""
    if settings.parallel.precision.startswith("mixed"):
        return 0
    jump = (
        keras.layers.ReLU,
        keras.layers.LeakyReLU,
        keras.layers.MaxPooling2D,
        keras.layers.GlobalMaxPooling2D,
    )
    layers = sum(
        isinstance(layer, jump)
        or getattr(layer, "activation", keras.activations.linear) is not keras.activations.linear
        for layer, _ in _parts(model, features.IMAGE_SHAPE)
    )
    # A model's own code has them, too.
    operations = sum(node.op in _JUMPS for node in graph.forward(model, "float32"))
    return max(layers, operations)


def _parts(layer: Any, around: tuple[int, ...]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """The layers that are made of no others, or have weights beside them; and their outputs' shape.

    Args:
        layer: a model, or a layer: the parts of an attention are layers, too.
        around: the shape of what it is a part of, for those whose own is not known, as that of
            what is called in code only.
    """
    shape = _output(layer) or around
    if isinstance(layer, keras.Model):
        inner = layer.layers
    else:  # private, but the only list of the layers that a layer is made of
        inner = list(layer._flatten_layers(include_self=False, recursive=False))
    known = {id(variable) for part in inner for variable in part.variables}
    own = not inner or any(id(variable) not in known for variable in layer.variables)
    nothing = keras.layers.InputLayer if not inner else keras.Model
    if own and not isinstance(layer, nothing):
        yield layer, shape
    for part in inner:
        yield from _parts(part, shape)


def _forward(layer: Any, shape: tuple[int, ...], batch: int) -> float:
    """Terms of one of the sums that a layer's result is."""
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
    """Without the batch; () where a layer has none that is known, or several."""
    try:
        shape = getattr(layer, side).shape
    except (AttributeError, ValueError):
        return ()
    return tuple(size or 1 for size in shape[1:])
