"""Random numbers that depend on the example alone, not on its batch or device.

The numbers are a function of (seed, layer, step, row of the global batch). So they are the same on
one device, with replicas, microbatches, accumulation, workers and stages, and when activations are
recomputed. Keras's own seeds count calls, and differ there.

Scopes for Keras layers: the default float dtype, and assignments to trainable weights.

``SpectralNormalization`` assigns its layer's kernel in each training call. In Keras's own
``train_step``, the gradient is taken at the values that the layer read, and the optimizer updates
the assigned value. In a plain ``keras.StatelessScope``, the assigned value is a tensor computed
from the old one, so the gradient would be that of the old value.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.augment import GAMMA, mix, u64


@contextlib.contextmanager
def random_scope(
    step: tf.Tensor, positions: tf.Tensor, draws: Draws | None = None
) -> Iterator[None]:
    """Sets what keyed layers draw from, in training calls in this block and this thread.

    A block covers one pass through the model, or through a stage or segment of it. A function whose
    activations are recomputed opens the block itself.

    Args:
        positions: int64 ``[batch]``, the row of each example in the global batch.
        draws: keys that are arguments of the function that is traced; None: those of the layers.
    """
    token = _current.set(RandomState(step, positions, draws))
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def forked(state: RandomState | None) -> Iterator[None]:
    """In the block, layers draw from ``state``, a fork; None: from what they drew from before."""
    token = _current.set(state or _current.get())
    try:
        yield
    finally:
        _current.reset(token)


def current() -> RandomState | None:
    """The state of the open block; None outside of one."""
    return _current.get()


class Draws:
    """The draws of a function that equal layers share, whose keys are an argument."""

    def __init__(self, keys: tf.Tensor) -> None:
        """``keys``: uint64 ``[draws]``, in the order of the draws."""
        self._keys = keys
        self.names: list[tuple[str, int]] = []
        """Of each draw: the name of the layer, and how often that has drawn before."""

    def key(self, layer: str, count: int) -> tf.Tensor:
        """The key of the next draw."""
        self.names.append((layer, count))
        return self._keys[len(self.names) - 1]


def key(layer: str, count: int) -> int:
    """The key below 2 ** 64 of a layer's draw, after ``count`` draws in the same pass."""
    name = f"{layer}:{count}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


class RandomState:
    """The random numbers of a block, and how often each layer has drawn."""

    def __init__(self, step: tf.Tensor, positions: tf.Tensor, draws: Draws | None = None) -> None:
        self.step = step
        self.positions = positions
        self.calls: Counter[str] = Counter()
        self._draws = draws

    def fork(self) -> RandomState:
        """A state that draws the same numbers from now on, and counts calls by itself."""
        other = RandomState(self.step, self.positions, self._draws)
        other.calls = self.calls.copy()
        return other

    def key(self, layer: str) -> int | tf.Tensor:
        """A key below 2 ** 64 for this call; a second call of the layer has another."""
        count = self.calls[layer]
        self.calls[layer] += 1
        return self._draws.key(layer, count) if self._draws else key(layer, count)

    def uniform(
        self, key: int | tf.Tensor, shape: list[Any], per_example: bool, dtype: tf.DType = tf.uint16
    ) -> tf.Tensor:
        """Unsigned integers, uniform over all values of the dtype: uint16, uint32 or uint64."""
        state = mix(u64(key) + u64(self.step))
        rows = mix(state + u64(self.positions)) if per_example else state[tf.newaxis]
        count = tf.size(rows)
        each = tf.reduce_prod(tf.stack(shape)) // count
        # One mixing yields several draws: mixing is most of the cost of dropout.
        draws = 8 // dtype.size
        words = u64(tf.range(1, (each + draws - 1) // draws + 1, dtype=tf.int64)) * u64(GAMMA)
        bits = mix(rows[:, tf.newaxis] + words)
        if draws > 1:
            bits = tf.bitcast(bits, dtype)
        return tf.reshape(tf.reshape(bits, [count, -1])[:, :each], shape)

    def part(self) -> tf.Tensor:
        """31 bits that identify the part of the global batch, as int64; 0 for the first part."""
        first = mix(u64(self.positions[:1]))[0]
        return tf.cast(tf.bitwise.bitwise_and(first, u64(2**31 - 1)), tf.int64)


_current: ContextVar[RandomState | None] = ContextVar("random_state", default=None)


class TrainingScope(keras.StatelessScope):
    """Like ``keras.StatelessScope``, but the gradient of an assigned weight is the weight's."""

    def __init__(self, variables: Sequence[keras.Variable], values: Sequence[tf.Tensor]):
        """Takes a value for each variable, for which gradients are taken; collects losses."""
        pairs = list(zip(variables, values, strict=True))
        super().__init__(pairs, collect_losses=True)
        self._values = {id(variable): value for variable, value in pairs if variable.trainable}
        self.foreign: list[keras.Variable] = []
        """Assigned variables that are not among ``variables``."""
        self._known = {id(variable) for variable in variables}

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Stores an assignment, for later reads and for the end of the step."""
        variable, value = update
        if id(variable) not in self._known:
            self.foreign.append(variable)
        if id(variable) in self._values:
            value = assigned_value(self._values[id(variable)], value)
        else:  # assignment to a variable stops gradients
            value = tf.stop_gradient(value)
        super().add_update((variable, value))


@tf.custom_gradient
def assigned_value(weight: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
    """``value``, whose gradient is the gradient of ``weight``."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return upstream, None

    return tf.identity(value), gradient


@contextlib.contextmanager
def floatx(dtype: str) -> Iterator[None]:
    """Makes ``dtype`` Keras's default float dtype in the block."""
    before = keras.config.floatx()
    keras.config.set_floatx(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(before)
