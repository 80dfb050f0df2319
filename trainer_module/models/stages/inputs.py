"""What a model is called with: shapes and dtypes of its inputs, also of a subclassed model."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest

_noted: weakref.WeakKeyDictionary[keras.Model, Nest] = weakref.WeakKeyDictionary()
"""Model -> its inputs; a model with a visible graph knows them by itself, but not all sizes."""


def note(model: keras.Model, specs: Nest) -> None:
    """Remembers what a model is called with: a ``Spec`` of the task, or a structure of them."""
    _noted[model] = tf.nest.map_structure(
        lambda spec: keras.KerasTensor((None, *spec.shape), spec.dtype), specs
    )


def of(model: keras.Model) -> Nest:
    """A model's symbolic inputs, as it wants them: a tensor ``[batch, …]``, or a structure.

    Raises:
        LookupError: a subclassed model that was never called, nor noted.
    """
    if getattr(model, "inputs", None):
        return model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    if model in _noted:
        return _noted[model]
    config = model.get_build_config() or {}
    if "input_shape" not in config:
        raise LookupError(f"the inputs of {model.name} are not known; call the model once")
    return _of_shapes(config["input_shape"])


def are_open(inputs: Nest) -> bool:
    """Whether a size is not known, but for the number of examples."""
    return any(None in tensor.shape[1:] for tensor in tf.nest.flatten(inputs))


def sized(model: keras.Model) -> Nest:
    """As :func:`of`, but for costs: sizes that the model leaves open are those noted."""
    own, noted = of(model), tf.nest.flatten(_noted.get(model, ()))
    symbols = tf.nest.flatten(own)
    if not are_open(own) or len(symbols) != len(noted):
        return own
    pairs = list(zip(symbols, noted, strict=True))
    if not all(_fits(symbol.shape, known.shape) for symbol, known in pairs):
        return own
    filled = [keras.KerasTensor(known.shape, symbol.dtype) for symbol, known in pairs]
    return tf.nest.pack_sequence_as(own, filled)


def _fits(shape: Sequence[int | None], other: Sequence[int | None]) -> bool:
    sizes = zip(shape[1:], other[1:], strict=False)
    return len(shape) == len(other) and all(a in (None, b) for a, b in sizes)


def _of_shapes(shapes: Any) -> Nest:
    """Symbolic float32 inputs from the shapes with which Keras built a model."""
    if isinstance(shapes, dict):
        return {name: _of_shapes(shape) for name, shape in shapes.items()}
    if any(isinstance(size, (tuple, list)) for size in shapes):
        return [_of_shapes(shape) for shape in shapes]
    return keras.KerasTensor((None, *shapes[1:]), "float32")


def specs(inputs: Nest, examples: int, unknown: int = 1) -> Nest:
    """``tf.TensorSpec`` of a batch of symbolic inputs.

    Args:
        inputs: any objects with a shape ``[batch, …]`` and a dtype.
        unknown: size of the other dimensions that are not known.
    """

    def spec(tensor: Any) -> tf.TensorSpec:
        sizes = (unknown if size is None else size for size in tensor.shape[1:])
        return tf.TensorSpec([examples, *sizes], tensor.dtype)

    return tf.nest.map_structure(spec, inputs)


def zeros(spec: Any, examples: int) -> np.ndarray:
    """Zeros, or empty strings, for examples of a task's ``Spec``; unknown sizes are 1."""
    shape = (examples, *(size or 1 for size in spec.shape))
    return np.zeros(shape, "U1" if spec.dtype == "string" else spec.dtype)


def noise(specs: Nest, generator: np.random.Generator, scale: float = 1.0) -> Nest:
    """Random tensors: floats of a normal distribution times ``scale``; integers 0 and 1."""

    def draw(spec: tf.TensorSpec) -> tf.Tensor:
        shape = spec.shape.as_list()
        if spec.dtype == tf.string:
            return tf.as_string(tf.constant(generator.integers(0, 2, shape)))
        if not spec.dtype.is_floating:
            return tf.cast(tf.constant(generator.integers(0, 2, shape)), spec.dtype)
        return tf.cast(tf.constant(scale * generator.standard_normal(shape)), spec.dtype)

    return tf.nest.map_structure(draw, specs)
