"""Averages of the weights, which the Trainer evaluates and exports in place of the weights.

*EMA weights* are the exponential moving average of the weights.

*Lookahead*: every few steps, a pull moves slow weights, and sets the weights to them (Zhang et al.
2019, "Lookahead Optimizer: k steps forward, 1 step back", algorithm 1). The decay grows over the
steps, as in Jordan 2024 (arXiv 2404.00498; ``LookaheadState`` of legacy/airbench94.py). As there, a
pull includes moving statistics, slots stay as they are, and the slow weights are the result of the
training. They do not change between two pulls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.settings import TrainSettings

_LOOKAHEAD_DECAY = 0.95
"""Largest decay for each step between two pulls."""


def averaged(
    train: TrainSettings,
    weights: Sequence[keras.Variable],
    assigned: Sequence[keras.Variable],
) -> list[keras.Variable]:
    """The variables that have averages.

    With ``train.ema_decay``, these are the weights: BatchNorm's moving statistics are averages
    already. With ``train.lookahead``, moving statistics belong to the slow weights: those of the
    weights between two pulls do not fit them.

    Args:
        weights: trained ones.
        assigned: other variables that training assigns. The rest, such as frozen weights, stays
            as it is.
    """
    if train.ema_decay:
        return list(weights)
    if not train.lookahead:
        return []
    return [*weights, *(v for v in assigned if keras.backend.is_float_dtype(v.dtype))]


def create(variables: Sequence[keras.Variable]) -> list[tf.Variable]:
    """An average for each variable, on the devices of the current strategy scope."""
    return [tf.Variable(variable.numpy(), trainable=False) for variable in variables]


def ema_decay(decay: float, step: tf.Tensor) -> tf.Tensor:
    """``min(decay, (1 + step) / (10 + step))``, float32: EMA weights move faster early on.

    Otherwise the initial weights would dominate for ``1 / (1 - decay)`` steps. The rule is
    ``num_updates`` of ``tf.train.ExponentialMovingAverage``.
    """
    done = tf.cast(step, tf.float32)
    return tf.minimum(tf.constant(decay, tf.float32), (1 + done) / (10 + done))


def move_ema(average: tf.Variable, value: tf.Tensor, decay: tf.Tensor) -> None:
    """``average = decay * average + (1 - decay) * value``."""
    average.assign_sub(tf.cast(1 - decay, average.dtype) * (average - value))


def update_ema(
    strategy: tf.distribute.Strategy,
    ema_weights: Sequence[tf.Variable],
    variables: Sequence[keras.Variable],
    decay: tf.Tensor,
) -> None:
    """:func:`move_ema` on every replica; in cross-replica context."""
    for average, variable in zip(ema_weights, variables, strict=True):
        strategy.extended.update(average, move_ema, args=(variable.value, decay), group=False)


def pull_is_due(every: int, done: tf.Tensor) -> tf.Tensor:
    """Whether a pull follows the step; bool scalar.

    Args:
        every: steps between two pulls.
        done: steps taken, with this one; int64 scalar.
    """
    return tf.equal(done % every, 0)


def lookahead_decay(every: int, done: tf.Tensor, total: int, dtype: tf.DType) -> tf.Tensor:
    """``0.95 ** every * (done / total) ** 3``: the last pulls change the slow weights the least.

    Args:
        every: steps between two pulls.
        done: steps taken, with this one; int64 scalar.
        total: steps of the whole training.
        dtype: of the result.
    """
    share = tf.minimum(tf.cast(done, dtype) / tf.cast(total, dtype), 1)
    return tf.constant(_LOOKAHEAD_DECAY**every, dtype) * share**3


def when_due(due: tf.Tensor, run: Callable[[], Any]) -> None:
    """Adds the ops of ``run`` to a graph; they run only in a step where a pull is due."""

    def taken() -> tf.Tensor:
        run()
        return tf.constant(True)

    tf.cond(due, taken, lambda: tf.constant(False))


def follow(slow: tf.Variable, weight: tf.Variable) -> None:
    """``slow = weight``, for a weight that the training does not change any more."""
    slow.assign(tf.convert_to_tensor(weight))


def pull(
    slow: tf.Variable,
    weight: tf.Variable,
    decay: tf.Tensor,
    constraint: Callable[[tf.Tensor], tf.Tensor] | None,
) -> None:
    """``slow = decay * slow + (1 - decay) * weight; weight = slow``.

    The slow weight meets the constraint of its weight: it is exported.
    """
    move_ema(slow, tf.convert_to_tensor(weight), decay)
    if constraint is not None:
        slow.assign(constraint(slow.read_value()))
    weight.assign(slow.read_value())
