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
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models.layers.splitmix import GAMMA, mix, u64

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

    These are Dropout, SpatialDropout1D to 3D, AlphaDropout, GaussianDropout and GaussianNoise, at
    any depth. A layer is known by the names on the way to it, the model's own left out, which a cut
    into stages does not change. Other layers with a Keras ``SeedGenerator`` draw what they draw
    under Keras, in the first part of a batch; in each other part from a seed of its own, so that no
    two parts draw alike. A warning names them.

    The first dimension of what they are called with is the batch, or a multiple of it in which the
    parts of an example stand together (``[batch * windows, …]``).

    Args:
        model: built; stages that share its layers are keyed with it.
        seed: of the training.
    """
    for path, layer in walk(model):
        # A subclass that draws in its own way is another layer.
        draw = _DRAWS.get(type(layer).call)
        if draw is not None:
            layer.call = _keyed(layer, draw, f"{seed}/{path}")
        else:
            for generator in layer._seed_generators:  # private, but the only list of them
                generator.next = _by_part(generator)
    for note in notes(model):
        _log.warning("%s: %s", model.name, note)


def notes(model: keras.Model) -> list[str]:
    """What a user has to know of the model's random layers, in sentences."""
    others = [
        f"{path} ({type(layer).__name__})" for path, layer in walk(model) if draws_itself(layer)
    ]
    if not others:
        return []
    return [
        f"{', '.join(others)}: the random numbers of {_these(others)} are Keras's own, and differ "
        "between topologies; their distribution does not"
    ]


def _these(names: list[str]) -> str:
    return "this layer" if len(names) == 1 else "these layers"


def _by_part(generator: keras.random.SeedGenerator) -> Callable[..., tf.Tensor]:
    """A generator's next seed, mixed with the part of the batch that it is for."""

    def next_seed(*args: Any, **kwargs: Any) -> tf.Tensor:
        seed = type(generator).next(generator, *args, **kwargs)
        current = _current.get()
        if current is None:
            return seed
        return tf.bitwise.bitwise_xor(seed, tf.cast(current.part(), seed.dtype))

    return next_seed


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

    def uniform(
        self, key: int, shape: list[Any], per_example: bool, dtype: tf.DType = tf.uint16
    ) -> tf.Tensor:
        """Unsigned integers of the shape, uniform over all values.

        Args:
            key: of the call.
            shape: whose first dimension is the batch or not.
            per_example: which of both.
            dtype: uint16, uint32 or uint64.
        """
        state = mix(u64(key) + u64(self.step))
        rows = mix(state + u64(self.positions)) if per_example else state[tf.newaxis]
        count = tf.size(rows)
        each = tf.reduce_prod(tf.stack(shape)) // count
        # One mixing gives several draws: it is most of what dropout costs.
        draws = 8 // dtype.size
        words = u64(tf.range(1, (each + draws - 1) // draws + 1, dtype=tf.int64)) * u64(GAMMA)
        bits = mix(rows[:, tf.newaxis] + words)
        if draws > 1:
            bits = tf.bitcast(bits, dtype)
        return tf.reshape(tf.reshape(bits, [count, -1])[:, :each], shape)

    def part(self) -> tf.Tensor:
        """31 bits that stand for the part of the global batch, as int64; 0 for the first one."""
        first = mix(u64(self.positions[:1]))[0]
        return tf.cast(tf.bitwise.bitwise_and(first, u64(2**31 - 1)), tf.int64)


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
    keep = _kept(layer.rate, current, key, noise, per_example)
    scaled = inputs * tf.cast(1 / (1 - layer.rate), inputs.dtype)
    return tf.where(keep, scaled, tf.zeros([], inputs.dtype))


def _alpha_dropout(layer: Any, inputs: tf.Tensor, current: _Drawing, key: int) -> tf.Tensor:
    """As Keras's own; Klambauer et al. 2017, "Self-Normalizing Neural Networks"."""
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
    rate: float, current: _Drawing, key: int, shape: list[Any], per_example: bool
) -> tf.Tensor:
    """bool of the shape: False with the probability ``rate``, to 2 ** -17, a small one to 2 ** -33.

    Of 65536, or 2 ** 32, equally likely values some mean a drop.
    """
    dtype, values = (tf.uint16, 2**16) if rate >= 0.01 else (tf.uint32, 2**32)
    dropped = min(round(rate * values), values - 1)
    return current.uniform(key, shape, per_example, dtype) >= tf.constant(dropped, dtype)


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
    """Normal draws like the inputs: the quantiles of uniform draws of 53 bits.

    In float64: logarithms differ in their last bit between XLA, a vector's lanes and its remainder,
    and so between a batch and a part of it. In the inputs' precision that is seen no more.
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


def walk(model: Any) -> Iterator[tuple[str, Any]]:
    """Every layer inside, once, by its path. Keras gives one to layers with weights only."""
    return _walk(model, "", set())


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


def draws_itself(layer: Any) -> bool:
    """Whether a layer's random draws are Keras's own, and not keyed by the example."""
    if type(layer).call in _DRAWS:
        return False
    # Recurrent cells have a generator even if they drop nothing.
    rates = [getattr(layer, name, None) for name in ("dropout", "recurrent_dropout")]
    return bool(layer._seed_generators) and rates != [0, 0]
