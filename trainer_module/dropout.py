"""Dropout that depends on the example, and on nothing around it.

What a layer draws for an example is a function of (seed, layer, step, row of the global batch), so
that it is the same on one device, and with replicas, microbatches, accumulation, workers and
stages, and when activations are computed again. Keras's own seeds count calls, and differ there.

    key_layers(model, seed)                    # once, on the template
    with drawing(step, positions):             # inside the function that is traced
        outputs = model(inputs, training=True)
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from statistics import NormalDist
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.splitmix import GAMMA, mix, u64

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def drawing(step: tf.Tensor, positions: tf.Tensor) -> Iterator[None]:
    """What training calls of keyed layers in this block, and in this thread, draw from.

    One block holds one pass through the model, or through a stage or segment of it. A function
    whose activations are computed again opens the block itself.

    Args:
        step: int64 scalar.
        positions: int64 ``[batch]``, the row of the global batch that each example is.
    """
    token = _current.set(_Drawing(step, positions))
    try:
        yield
    finally:
        _current.reset(token)


def key_layers(model: keras.Model, seed: int) -> None:
    """Lets the model's layers draw from ``drawing`` where it is open; elsewhere nothing changes.

    These are Dropout, SpatialDropout1D to 3D, GaussianDropout and GaussianNoise, at any depth.
    Other layers with a Keras ``SeedGenerator`` are named in a warning. A layer is known by the
    names on the way to it, the model's own left out, which a cut into stages does not change.

    The first dimension of what they are called with is the batch, or a multiple of it in which the
    parts of an example stand together (``[batch * windows, …]``).

    Args:
        model: built; stages that share its layers are keyed with it.
        seed: of the training.
    """
    others = []
    for path, layer in _walk(model, "", set()):
        # A subclass that draws in its own way is another layer.
        draw = _DRAWS.get(type(layer).call)
        if draw is not None:
            layer.call = _keyed(layer, draw, f"{seed}/{path}")
        elif _draws_itself(layer):
            others.append(f"{path} ({type(layer).__name__})")
    if others:
        _log.warning(
            "%s: the random draws of %s are Keras's own, and so differ between topologies and "
            "between replicas; those of Dropout, SpatialDropout, GaussianDropout and "
            "GaussianNoise do not",
            model.name,
            ", ".join(others),
        )


class _Drawing:
    """What an open block knows, and how often each layer was called in it."""

    def __init__(self, step: tf.Tensor, positions: tf.Tensor) -> None:
        self.step = step
        self.positions = positions
        self.calls: Counter[str] = Counter()

    def key(self, layer: str) -> int:
        """A number below 2 ** 64 for this call; a layer that is called twice draws twice."""
        name = f"{layer}:{self.calls[layer]}"
        self.calls[layer] += 1
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")

    def uniform(self, key: int, shape: list[Any], per_example: bool) -> tf.Tensor:
        """uint16 of the shape, uniform over all values; the first dimension is the batch or not."""
        state = mix(u64(key) + u64(self.step))
        rows = mix(state + u64(self.positions)) if per_example else state[tf.newaxis]
        count = tf.size(rows)
        each = tf.reduce_prod(tf.stack(shape)) // count
        words = u64(tf.range(1, (each + 3) // 4 + 1, dtype=tf.int64)) * u64(GAMMA)
        # One mixing gives four draws: it is most of what dropout costs.
        bits = tf.bitcast(mix(rows[:, tf.newaxis] + words), tf.uint16)
        return tf.reshape(tf.reshape(bits, [count, -1])[:, :each], shape)


_current: ContextVar[_Drawing | None] = ContextVar("drawing", default=None)

_Draw = Callable[[Any, tf.Tensor, _Drawing, int], tf.Tensor]


def _keyed(layer: Any, draw: _Draw, name: str) -> Callable[..., tf.Tensor]:
    own = functools.partial(type(layer).call, layer)

    def call(inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        current = _current.get()
        if not training or current is None:
            return own(inputs, training=training)
        return draw(layer, inputs, current, current.key(name))

    return call


def _dropout(layer: Any, inputs: tf.Tensor, current: _Drawing, key: int) -> tf.Tensor:
    """As ``tf.nn.experimental.stateless_dropout`` once the mask is drawn."""
    shape = list(keras.ops.shape(inputs))
    noise, per_example = _noise_shape(layer, shape)
    if layer.rate == 0:
        return inputs
    if layer.rate == 1:
        return tf.zeros_like(inputs)
    # Of 65536 equally likely values, the number that means a drop.
    dropped = min(round(layer.rate * 2**16), 2**16 - 1)
    keep = current.uniform(key, noise, per_example) >= tf.constant(dropped, tf.uint16)
    scaled = inputs * tf.cast(1 / (1 - layer.rate), inputs.dtype)
    return tf.where(keep, scaled, tf.zeros([], inputs.dtype))


def _noise_shape(layer: Any, shape: list[Any]) -> tuple[list[Any], bool]:
    """The shape of the mask, and whether each example has one of its own.

    In a ``noise_shape``, None and -1 are the input's dimension; the batch dimension is the
    input's too, however large the batch that the user had in mind, unless it is 1 and so shared.
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


def _gaussian_dropout(layer: Any, inputs: tf.Tensor, current: _Drawing, key: int) -> tf.Tensor:
    if layer.rate == 0:
        return inputs
    deviation = math.sqrt(layer.rate / (1 - layer.rate))
    return inputs * _normal(inputs, current, key, mean=1, deviation=deviation)


def _gaussian_noise(layer: Any, inputs: tf.Tensor, current: _Drawing, key: int) -> tf.Tensor:
    if layer.stddev == 0:
        return inputs
    return inputs + _normal(inputs, current, key, mean=0, deviation=layer.stddev)


def _normal(
    inputs: tf.Tensor, current: _Drawing, key: int, *, mean: float, deviation: float
) -> tf.Tensor:
    """Normal draws like the inputs.

    Looked up, and not computed as by Box and Muller: logarithm and cosine differ in their last bit
    between XLA, a vector's lanes and its remainder, and so between a batch and a part of it.
    """
    shape = list(keras.ops.shape(inputs))
    table = tf.constant((mean + deviation * _quantiles()).astype(np.float32))
    draws = tf.gather(table, tf.cast(current.uniform(key, shape, per_example=True), tf.int32))
    return tf.cast(draws, inputs.dtype)


@functools.lru_cache(maxsize=1)
def _quantiles() -> np.ndarray:
    """float64 ``[65536]``: equally likely values of mean 0 and variance 1, up to 4.3 deviations."""
    upper = np.array([NormalDist().inv_cdf((2**15 + i + 0.5) / 2**16) for i in range(2**15)])
    values = np.concatenate([-upper[::-1], upper])
    return values / values.std()


_SPATIAL = (
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
)
_DRAWS: dict[Any, _Draw] = {
    keras.layers.Dropout.call: _dropout,
    keras.layers.SpatialDropout2D.call: _dropout,  # the other two inherit the same function
    keras.layers.GaussianDropout.call: _gaussian_dropout,
    keras.layers.GaussianNoise.call: _gaussian_noise,
}


def _walk(layer: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Every layer inside, once, by its path. Keras gives one to layers with weights only."""
    names: Counter[str] = Counter()
    # Private, but the only list of the layers that a layer is made of; `Model.layers` is this call.
    for child in layer._flatten_layers(include_self=False, recursive=False):
        path = f"{prefix}{child.name}"
        if names[child.name]:  # allowed outside functional models
            path += f":{names[child.name]}"
        names[child.name] += 1
        if id(child) not in seen:
            seen.add(id(child))
            yield path, child
            yield from _walk(child, f"{path}/", seen)


def _draws_itself(layer: Any) -> bool:
    # Recurrent cells have a generator even if they drop nothing.
    rates = [getattr(layer, name, None) for name in ("dropout", "recurrent_dropout")]
    return bool(layer._seed_generators) and rates != [0, 0]
