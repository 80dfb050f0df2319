"""The learning rate over the steps of a training."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.settings import TrainSettings

ONE_CYCLE_WARMUP = 0.3
"""Share of all steps that one_cycle warms up for, where ``warmup_steps`` is 0."""


def learning_rate(
    settings: TrainSettings, total_steps: int, dtype: tf.DType = tf.float32
) -> Callable[[tf.Tensor | int], tf.Tensor]:
    """The rate at step ``t`` of ``T = total_steps``, counted from 0, with ``w`` warm-up steps::

        rate(t) = learning_rate * min(1, (t + 1) / w) * decay(p),   p = max(0, (t - w) / (T - w))

        constant    decay(p) = 1
        cosine      decay(p) = (1 + cos(pi p)) / 2      Loshchilov and Hutter 2016, eq. 5
        one_cycle   decay(p) = 1 - p                    Smith 2018, linear up and down

    The first step has a rate above 0, the peak is reached on step ``w - 1``, and the rate would
    be 0 on step ``T``, the first one that is not made. Without a warm-up the first factor is 1;
    one_cycle, which is one for its warm-up, then takes ``w = 0.3 T``.

    Returns:
        A function of the step (an int64 scalar, or a Python int) that gives a scalar of ``dtype``.

    Raises:
        UserError: the warm-up is longer than the training.
    """
    warmup = settings.warmup_steps
    if settings.schedule == "one_cycle" and not warmup:
        warmup = round(ONE_CYCLE_WARMUP * total_steps)
    if warmup > total_steps:
        raise UserError(
            f"train.warmup_steps: {warmup} is more than the {total_steps} steps of the training; "
            f"use {total_steps // 10}, or raise train.steps or train.epochs"
        )
    decay = _DECAYS[settings.schedule]

    def rate(step: tf.Tensor | int) -> tf.Tensor:
        # Differences are taken in int64: exact, and only then divided.
        step = tf.cast(step, tf.int64)
        rising = tf.cast(step + 1, dtype) / max(warmup, 1)
        progress = tf.cast(step - warmup, dtype) / max(total_steps - warmup, 1)
        return (
            settings.learning_rate
            * tf.minimum(rising, 1.0)
            * decay(tf.clip_by_value(progress, 0.0, 1.0))
        )

    return rate


_DECAYS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "constant": tf.ones_like,
    "cosine": lambda progress: (1.0 + tf.cos(math.pi * progress)) / 2.0,
    "one_cycle": lambda progress: 1.0 - progress,
}
