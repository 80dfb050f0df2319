"""The errors for a loss that is not finite: likely cause and remedy."""

from __future__ import annotations

import math

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.engines.step_metrics import NonFiniteLossError

RATE = "Lower train.learning_rate, or raise train.warmup_steps."

INPUTS = "the output of preprocessing_fn"


class DivergedError(UserError):
    """The loss, or a gradient, is infinite or not a number."""

    def __init__(self, what: str, kept: str, *, updates: int, loss: float, precision: str):
        """``what`` is not finite, such as ``the loss is nan at step 3``; ``kept`` is a checkpoint.

        Without weight ``updates``, the learning rate is not the cause. The loss is in nats.
        """
        cause = _cause(updates, loss, precision)
        super().__init__(f"Training stopped: {what}{kept}. {cause}")
        self.updates = updates
        self.loss = loss
        self.precision = precision


def in_training(error: NonFiniteLossError, precision: str, kept: str) -> DivergedError:
    """The error for a training step."""
    what = f"the loss is {error.loss} at step {error.step}"
    if math.isfinite(error.loss):  # with a loss scale, the engine checks the gradients
        what = f"a gradient is not finite at step {error.step} (loss {error.loss:.4g})"
    return DivergedError(what, kept, updates=error.step - 1, loss=error.loss, precision=precision)


def in_evaluation(step: int, loss: float, precision: str, kept: str) -> DivergedError:
    """The error for the val split, after a step."""
    what = f"the loss on the val split is {loss} after step {step}"
    return DivergedError(what, kept, updates=step, loss=loss, precision=precision)


def _cause(updates: int, loss: float, precision: str) -> str:
    half = precision == "mixed_float16"
    if updates and not half:
        return RATE
    if updates:
        return (
            f"{RATE} If that does not help, a value exceeds the range of float16 (65,504): use "
            "parallel.precision: mixed_bfloat16 or float32."
        )
    if half:
        where = "a gradient" if math.isfinite(loss) else "a value of the forward pass"
        return (
            f"No weight has changed yet and the loss scale is 1, so {where} exceeds the range of "
            "float16 (65,504). Use parallel.precision: mixed_bfloat16 or float32. If the error "
            "remains, the cause is in the inputs or in an operation of the model."
        )
    return (
        "No weight has changed yet, so train.learning_rate is not the cause. Either the inputs are "
        "not finite, or an operation of the model yields such values, for example a division by 0 "
        f"or the logarithm of 0. Check {INPUTS}, and the model's operations and initial weights."
    )
