"""The same learning rate in every step."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.optimization.schedule import Schedule


class Constant(Schedule):
    """The same learning rate in every step."""

    name = "constant"
    description = "the same learning rate in every step"
    depends_on_length = False

    def decay(self, progress: Any) -> Any:
        """1."""
        import tensorflow as tf

        return tf.ones_like(progress)


CONSTANT = Constant()
