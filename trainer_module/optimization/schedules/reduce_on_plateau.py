"""A rate that falls when evaluations stop improving, as ``keras.callbacks.ReduceLROnPlateau``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.common import signatures
from stagecraft.trainer_module.optimization.schedule import ARGS, Schedule


class ReduceOnPlateau(Schedule):
    """A rate that falls when evaluations stop improving."""

    name = "reduce_on_plateau"
    description = (
        "times factor (0.1) after patience (10) evaluations without an improvement of the task's "
        "monitored metric (train.schedule_args)"
    )
    depends_on_length = False
    follows_evaluations = True

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks the names against the signature of Keras's callback, without importing it."""
        known = dict(signatures.arguments("keras.callbacks", "ReduceLROnPlateau"))
        for name in ("mode", "verbose"):
            known.pop(name, None)
        signatures.check(ARGS, arguments, known, {"monitor": "the monitored metric of the task"})

    def decay(self, progress: Any) -> Any:
        """1; the engine multiplies the rate by the factor of the evaluations."""
        import tensorflow as tf

        return tf.ones_like(progress)


REDUCE_ON_PLATEAU = ReduceOnPlateau()
