"""A training whose loss is not finite: what it may come from, and what works."""

from __future__ import annotations

import math

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.engines.base import NonFiniteLossError

HALF = "mixed_float16"

_RATE = "Lower train.learning_rate, or raise train.warmup_steps."


class DivergedError(UserError):
    """The loss, or a gradient, is infinite or not a number."""

    def __init__(self, what: str, kept: str, *, updates: int, loss: float, precision: str):
        """What is told.

        Args:
            what: is not finite, and where, such as ``the loss is nan at step 3``.
            kept: which checkpoint there is, and where.
            updates: of the weights, before that loss. Without any, no learning rate is the cause.
            loss: nats.
            precision: ``parallel.precision``.
        """
        cause = _cause(updates, loss, precision)
        super().__init__(f"Training stopped: {what}{kept}. {cause}")
        self.updates = updates
        self.loss = loss
        self.precision = precision


def in_training(error: NonFiniteLossError, precision: str, kept: str) -> DivergedError:
    """Of a step of the training."""
    what = f"the loss is {error.loss} at step {error.step}"
    if math.isfinite(error.loss):  # a loss scale looks at the gradients
        what = f"a gradient is not finite at step {error.step} (loss {error.loss:.4g})"
    return DivergedError(what, kept, updates=error.updates, loss=error.loss, precision=precision)


def in_evaluation(step: int, loss: float, precision: str, kept: str) -> DivergedError:
    """Of the val split, after a step."""
    what = f"the loss on the val split is {loss} after step {step}"
    return DivergedError(what, kept, updates=step, loss=loss, precision=precision)


def _cause(updates: int, loss: float, precision: str) -> str:
    half = precision == HALF
    if updates and not half:
        return _RATE
    if updates:
        return (
            f"{_RATE} If that does not help, a value does not fit into float16, which ends at "
            "65,504: use parallel.precision: mixed_bfloat16 or float32."
        )
    if half:
        where = "a gradient" if math.isfinite(loss) else "a value of the forward pass"
        return (
            "No weight was changed before that, and the loss scale is 1, so neither "
            f"train.learning_rate nor the scale is the cause: {where} does not fit into float16, "
            "which ends at 65,504. Use parallel.precision: mixed_bfloat16 or float32. If the "
            "same happens there, the inputs or an operation of the model are the cause."
        )
    return (
        "No weight was changed before that, so train.learning_rate is not the cause. Either "
        "the inputs are not finite, or an operation of the model gives such values, as a division "
        "by 0 or the logarithm of 0 does. Check what preprocessing_fn gives, and the model's own "
        "operations and initial weights."
    )
