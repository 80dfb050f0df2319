"""Dropout and noise layers that draw for each example, independent of its batch and device."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.augment import u64
from stagecraft.trainer_module.models.layers import random_state
from stagecraft.trainer_module.models.layers.random_state import RandomState
from stagecraft.trainer_module.models.layers.walk import walk

_log = logging.getLogger(__name__)

_Draw = Callable[[Any, tf.Tensor, RandomState, Any], tf.Tensor]


def key_layers(model: keras.Model, seed: int) -> None:
    """Makes the model's layers draw from an open ``random_scope``.

    These layers are Dropout, SpatialDropout1D to 3D, AlphaDropout, GaussianDropout and
    GaussianNoise, at any depth. The path of names from the model to a layer identifies it; a cut
    into stages does not change that path. Other layers with a Keras ``SeedGenerator`` draw Keras's
    numbers in the first part of a batch, and from another seed in each other part, so that no two
    parts draw alike. A warning names them.

    The first dimension of their input is the batch, or a multiple of it in which the parts of an
    example are adjacent (``[batch * windows, …]``).
    """
    for path, layer in walk(model):
        # By the function: a subclass with its own `call` draws differently.
        draw = _DRAWS.get(type(layer).call)
        if draw is not None:
            layer.call = _keyed(layer, draw, f"{seed}/{path}")
        else:
            for generator in layer._seed_generators:  # private, but the only list
                generator.next = _by_part(generator)
    for note in notes(model):
        _log.warning("%s: %s", model.name, note)


def notes(model: keras.Model) -> list[str]:
    """Notes on the model's random layers for the user, in sentences."""
    others = [
        f"{path} ({type(layer).__name__})" for path, layer in walk(model) if draws_itself(layer)
    ]
    if not others:
        return []
    these = "this layer" if len(others) == 1 else "these layers"
    return [
        f"{', '.join(others)}: Keras draws the random numbers of {these}; they "
        "differ between topologies, their distribution does not"
    ]


def _by_part(generator: keras.random.SeedGenerator) -> Callable[..., tf.Tensor]:
    """Mixes a generator's next seed with the part of the batch."""

    def next_seed(*args: Any, **kwargs: Any) -> tf.Tensor:
        seed = type(generator).next(generator, *args, **kwargs)
        current = random_state.current()
        if current is None:
            return seed
        return tf.bitwise.bitwise_xor(seed, tf.cast(current.part(), seed.dtype))

    return next_seed


def is_keyed(layer: Any) -> bool:
    """Whether :func:`key_layers` replaces the ``call`` of such a layer."""
    return type(layer).call in _DRAWS


def keyed_names(model: keras.Model) -> list[str]:
    """The names by which :func:`key_layers` has keyed layers, in the order of the walk."""
    calls = (vars(layer).get("call") for _, layer in walk(model))
    return [call.keyed for call in calls if hasattr(call, "keyed")]


def is_replaced(layer: Any) -> bool:
    """Whether somebody other than :func:`key_layers` has replaced a layer's ``call``."""
    call = vars(layer).get("call")
    return call is not None and not hasattr(call, "keyed")


def draws_itself(layer: Any) -> bool:
    """Whether Keras, not this module, draws the layer's random numbers."""
    if is_keyed(layer):
        return False
    # Recurrent cells have a generator even if they drop nothing.
    rates = [getattr(layer, name, None) for name in ("dropout", "recurrent_dropout")]
    return bool(layer._seed_generators) and rates != [0, 0]


def _keyed(layer: Any, draw: _Draw, name: str) -> Callable[..., tf.Tensor]:
    own = functools.partial(type(layer).call, layer)

    def call(inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        current = random_state.current()
        if not training or current is None:
            return own(inputs, training=training)
        return draw(layer, inputs, current, current.key(name))

    call.keyed = name  # type: ignore[attr-defined]
    return call


def _dropout(
    layer: Any, inputs: tf.Tensor, current: RandomState, key: int | tf.Tensor
) -> tf.Tensor:
    """Like ``tf.nn.experimental.stateless_dropout``, with this mask."""
    shape = list(keras.ops.shape(inputs))
    noise, per_example = _noise_shape(layer, shape)
    if layer.rate == 0:
        return inputs
    if layer.rate == 1:
        return tf.zeros_like(inputs)
    keep = _kept(layer.rate, current, key, noise, per_example)
    scaled = inputs * tf.cast(1 / (1 - layer.rate), inputs.dtype)
    return tf.where(keep, scaled, tf.zeros([], inputs.dtype))


def _alpha_dropout(
    layer: Any, inputs: tf.Tensor, current: RandomState, key: int | tf.Tensor
) -> tf.Tensor:
    """Like Keras; Klambauer et al. 2017, "Self-Normalizing Neural Networks"."""
    if layer.rate == 0:
        return inputs
    shape = list(keras.ops.shape(inputs))
    keep = _kept(layer.rate, current, key, *_noise_shape(layer, shape))
    low = -1.6732632423543772848170429916717 * 1.0507009873554804934193349852946
    a = ((1 - layer.rate) * (1 + layer.rate * low**2)) ** -0.5
    dropped = tf.cast(low, inputs.dtype)
    return tf.cast(a, inputs.dtype) * tf.where(keep, inputs, dropped) - tf.cast(
        a * low * layer.rate, inputs.dtype
    )


def _kept(
    rate: float, current: RandomState, key: int | tf.Tensor, shape: list[Any], per_example: bool
) -> tf.Tensor:
    """A mask of bool: False with the probability ``rate``.

    A part of 2 ** 16 equally likely values, or of 2 ** 32 for a small rate, means False: the
    probability is exact to 2 ** -17, or to 2 ** -33.
    """
    dtype, values = (tf.uint16, 2**16) if rate >= 0.01 else (tf.uint32, 2**32)
    dropped = min(round(rate * values), values - 1)
    return current.uniform(key, shape, per_example, dtype) >= tf.constant(dropped, dtype)


def _noise_shape(layer: Any, shape: list[Any]) -> tuple[list[Any], bool]:
    """The shape of the mask, and whether each example has its own.

    In a ``noise_shape``, None and -1 stand for the input's dimension. So does any batch dimension
    except 1, which means one mask for all examples.
    """
    if isinstance(layer, _SPATIAL):
        features = 1 if getattr(layer, "data_format", None) == "channels_first" else len(shape) - 1
        return [size if axis in (0, features) else 1 for axis, size in enumerate(shape)], True
    if layer.noise_shape is None:
        return shape, True
    noise = list(layer.noise_shape)
    if len(noise) < len(shape) or noise[0] == 1:
        rest = shape[len(shape) - len(noise) :]
        per_example = False
    else:
        rest, noise[0], per_example = shape, None, True
    free = (None, -1)
    return [own if size in free else size for size, own in zip(noise, rest, strict=True)], (
        per_example
    )


def _gaussian_dropout(
    layer: Any, inputs: tf.Tensor, current: RandomState, key: int | tf.Tensor
) -> tf.Tensor:
    if layer.rate == 0:
        return inputs
    deviation = math.sqrt(layer.rate / (1 - layer.rate))
    return inputs * _normal(inputs, current, key, mean=1, deviation=deviation)


def _gaussian_noise(
    layer: Any, inputs: tf.Tensor, current: RandomState, key: int | tf.Tensor
) -> tf.Tensor:
    if layer.stddev == 0:
        return inputs
    return inputs + _normal(inputs, current, key, mean=0, deviation=layer.stddev)


def _normal(
    inputs: tf.Tensor, current: RandomState, key: int | tf.Tensor, *, mean: float, deviation: float
) -> tf.Tensor:
    """Normal draws in the shape of the inputs: quantiles of uniform draws of 53 bits.

    In float64, because the last bit of a logarithm differs between XLA, vector lanes and their
    remainder, and so between a batch and a part of it. Rounding to the inputs' dtype removes that.
    """
    bits = current.uniform(key, list(keras.ops.shape(inputs)), per_example=True, dtype=tf.uint64)
    places = tf.cast(tf.bitwise.right_shift(bits, u64(11)), tf.float64)
    return tf.cast(mean + deviation * tf.math.ndtri((places + 0.5) * 2.0**-53), inputs.dtype)


_SPATIAL = (
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
)
_DRAWS: dict[Any, _Draw] = {
    keras.layers.AlphaDropout.call: _alpha_dropout,
    keras.layers.Dropout.call: _dropout,
    keras.layers.SpatialDropout2D.call: _dropout,  # the other two inherit the same function
    keras.layers.GaussianDropout.call: _gaussian_dropout,
    keras.layers.GaussianNoise.call: _gaussian_noise,
}
