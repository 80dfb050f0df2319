"""How many additions a gradient goes through, read off the model; see :mod:`criteria`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import keras

from stagecraft.schemas import features
from stagecraft.trainer_module.settings import TrainingSettings


def lengths(model: keras.Model, settings: TrainingSettings) -> dict[str, float]:
    """Variable path -> n, for every trainable variable.

    Args:
        model: as :func:`stagecraft.trainer_module.assemble.assemble` builds it.
        settings: its batch size and precision.
    """
    layers = list(_leaves(model))
    if settings.parallel.precision.startswith("mixed"):
        # Each layer's result is rounded once forward and once backward, the weight's gradient once.
        roundings = 2 * len(layers) + 1
        return {variable.path: float(roundings) for variable in model.trainable_variables}
    size = settings.train.batch_size
    on_the_way = sum(2 * _forward(layer, size) for layer in layers)
    return {
        variable.path: float(on_the_way + size * _positions(layer))
        for layer in layers
        for variable in layer.trainable_variables
    } | {  # weights that belong to a model itself, in no layer of it
        variable.path: float(on_the_way + size * _positions(model))
        for variable in model.trainable_variables
        if not any(variable is known for layer in layers for known in layer.trainable_variables)
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
    return sum(
        isinstance(layer, jump)
        or getattr(layer, "activation", keras.activations.linear) is not keras.activations.linear
        for layer in _leaves(model)
    )


def _leaves(layer: Any) -> Iterator[Any]:
    """The layers that are no models of others."""
    inner = layer.layers if isinstance(layer, keras.Model) else []
    if not inner and not isinstance(layer, keras.layers.InputLayer):
        yield layer
    for part in inner:
        yield from _leaves(part)


def _forward(layer: Any, batch: int) -> float:
    """Terms of one of the sums that a layer's result is."""
    if isinstance(layer, keras.layers.BatchNormalization):
        return batch * _positions(layer)  # mean and variance
    kernel = getattr(layer, "kernel", None)
    if kernel is not None:
        return math.prod(kernel.shape[:-1])
    shape_in, shape_out = _shape(layer, "input"), _shape(layer, "output")
    if shape_in and shape_out and len(shape_out) < len(shape_in):
        return max(1, math.prod(shape_in) // max(1, math.prod(shape_out)))  # global pooling
    return 1


def _positions(layer: Any) -> int:
    """Places in one example at which a weight is used; an image's where it is not known."""
    shape = _shape(layer, "output") or _shape(layer, "input") or features.IMAGE_SHAPE
    return math.prod(shape[:-1])


def _shape(layer: Any, side: str) -> tuple[int, ...]:
    """Without the batch; () where a layer has none that is known, or several."""
    try:
        shape = getattr(layer, side).shape
    except (AttributeError, ValueError):
        return ()
    return tuple(size or 1 for size in shape[1:])
