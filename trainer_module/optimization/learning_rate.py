"""The learning rate over the steps of a training."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.optimization.schedule import RateSchedule
from stagecraft.trainer_module.settings import TrainSettings


def learning_rate(
    settings: TrainSettings, total_steps: int, dtype: tf.DType = tf.float32
) -> Callable[[tf.Tensor | int], tf.Tensor]:
    """The rate at step ``t`` of ``T = total_steps``, counted from 0, with ``w`` warm-up steps::

        rate(t) = learning_rate * min(1, (t + 1) / w) * decay(p),   p = max(0, (t - w) / (T - w))

    ``train.schedule`` names the decay. A schedule of Keras gives the rate itself, at step
    ``max(0, t - w)``, and the warm-up multiplies it. The first step has a rate above 0, and step
    ``w - 1`` has the peak. Without a warm-up the first factor is 1, unless the schedule has a
    default warm-up. The step is an int64 scalar, or a Python int; the rate is a scalar of
    ``dtype``.

    Raises:
        SettingError: the warm-up is longer than the training.
    """
    schedule: RateSchedule = registries.SCHEDULES.get(settings.schedule)
    warmup = settings.warmup_steps or round(schedule.default_warmup * total_steps)
    if warmup > total_steps:
        raise SettingError(
            "train.warmup_steps",
            warmup,
            f"is more than the {total_steps} steps of the training run",
            f"{total_steps // 10}, or raise train.steps or train.epochs",
        )

    rates = schedule.rates(settings)

    def rate(step: tf.Tensor | int) -> tf.Tensor:
        # Differences are taken in int64: exact, and only then divided.
        step = tf.cast(step, tf.int64)
        rising = tf.cast(step + 1, dtype) / max(warmup, 1)
        progress = tf.cast(step - warmup, dtype) / max(total_steps - warmup, 1)
        return rates(
            tf.minimum(rising, 1.0),
            tf.clip_by_value(progress, 0.0, 1.0),
            tf.maximum(step - warmup, 0),
        )

    return rate
