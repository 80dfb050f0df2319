"""Lookahead: every few steps, a pull moves slow weights, and sets the weights to them.

Zhang et al. 2019, "Lookahead Optimizer: k steps forward, 1 step back", algorithm 1. The decay grows
over the steps, as in Jordan 2024 (arXiv 2404.00498; ``LookaheadState`` of legacy/airbench94.py).
As there, a pull includes moving statistics, slots stay as they are, and the slow weights are the
result of the training. They do not change between two pulls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.optimization.averages import ema

DECAY = 0.95
"""Largest decay for each step between two pulls."""


def is_due(every: int, done: tf.Tensor) -> tf.Tensor:
    """Whether a pull follows the step; bool scalar.

    Args:
        every: steps between two pulls.
        done: steps taken, with this one; int64 scalar.
    """
    return tf.equal(done % every, 0)


def decay_at(every: int, done: tf.Tensor, total: int, dtype: tf.DType) -> tf.Tensor:
    """``0.95 ** every * (done / total) ** 3``: the last pulls change the slow weights the least.

    Args:
        every: steps between two pulls.
        done: steps taken, with this one; int64 scalar.
        total: steps of the whole training.
        dtype: of the result.
    """
    share = tf.minimum(tf.cast(done, dtype) / tf.cast(total, dtype), 1)
    return tf.constant(DECAY**every, dtype) * share**3


def when(due: tf.Tensor, pull: Callable[[], Any]) -> None:
    """Adds the ops of ``pull`` to a graph; they run only in a step where a pull is due."""

    def taken() -> tf.Tensor:
        pull()
        return tf.constant(True)

    tf.cond(due, taken, lambda: tf.constant(False))


def follow(slow: tf.Variable, weight: tf.Variable) -> None:
    """``slow = weight``, for a weight that the training does not change any more."""
    slow.assign(tf.convert_to_tensor(weight))


def move(
    slow: tf.Variable,
    weight: tf.Variable,
    decay: tf.Tensor,
    constraint: Callable[[tf.Tensor], tf.Tensor] | None,
) -> None:
    """``slow = decay * slow + (1 - decay) * weight; weight = slow``.

    The slow weight meets the constraint of its weight: it is exported.
    """
    ema.move(slow, tf.convert_to_tensor(weight), decay)
    if constraint is not None:
        slow.assign(constraint(slow.read_value()))
    weight.assign(slow.read_value())
