"""A learning rate that falls in steps."""

from __future__ import annotations

from typing import Any

from stagecraft.extend import Schedule


class Staircase(Schedule):
    """Half of the rate after each quarter of the training."""

    name = "staircase"
    description = "halves the learning rate after each quarter of the training"

    def decay(self, progress: Any) -> Any:
        """1, 1/2, 1/4, 1/8."""
        import tensorflow as tf

        return tf.pow(tf.cast(0.5, progress.dtype), tf.floor(4 * progress))


STAIRCASE = Staircase()
