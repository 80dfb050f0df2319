"""What a model is called with: shapes and dtypes of its inputs, also of a subclassed model."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.common.errors import SettingError
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


def note_sizes(model: keras.Model, input_shape: Any) -> None:
    """Remembers the sizes that a built model leaves open.

    Args:
        input_shape: ``(1024,)`` or 1024 for all inputs that it fits; or shapes by name, or in order
            (of the names, for a dictionary). None: nothing is known.

    Raises:
        SettingError: a size is missing, or does not fit.
    """
    own = of(model)
    symbols, problem = tf.nest.flatten(own), "does not fit the inputs of the model"
    named = isinstance(own, dict) and len(own) == len(symbols)
    names = sorted(own) if named else [each.name for each in symbols]
    use = {
        name: tuple(size or 1024 for size in symbol.shape[1:])
        for name, symbol in zip(names, symbols, strict=True)
        if None in symbol.shape[1:]
    }
    shown = f"input_shape={use if len(symbols) > 1 else next(iter(use.values()), None)}"
    shape = (input_shape,) if isinstance(input_shape, int) else input_shape
    if isinstance(shape, dict) and not {*shape} <= {*names}:
        raise SettingError("input_shape", input_shape, problem, shown)
    if isinstance(shape, dict):
        shapes = [shape.get(name) for name in names]
    elif shape is None or all(each is None or isinstance(each, int) for each in shape):
        shapes = [shape] * len(symbols)
    else:
        shapes = [*shape, *[None] * len(symbols)][: len(symbols)]
    noted = []
    for symbol, wanted in zip(symbols, shapes, strict=True):
        whole = symbol.shape if wanted is None else (None, *wanted)
        noted.append(whole if _fits(symbol.shape, whole) else symbol.shape)
    if any(None in each[1:] for each in noted):
        problem = problem if shape is not None else "is needed: the model leaves sizes open"
        raise SettingError("input_shape", input_shape, problem, shown)
    pairs = zip(noted, symbols, strict=True)
    _noted[model] = tf.nest.pack_sequence_as(
        own, [keras.KerasTensor(each, symbol.dtype) for each, symbol in pairs]
    )


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
