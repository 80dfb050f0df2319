"""What is said of a loss that is not finite."""

from __future__ import annotations

import math

import pytest

from stagecraft.trainer_module.engines.base import NonFiniteLossError
from stagecraft.trainer_module.training import diverged

KEPT = " (/checkpoints)"


def said(step: int, loss: float, precision: str) -> str:
    error = diverged.in_training(NonFiniteLossError(step, loss), precision, KEPT)
    assert (error.updates, error.precision) == (step - 1, precision)
    return str(error)


@pytest.mark.parametrize("precision", ["float32", "float64", "mixed_bfloat16"])
def test_at_the_first_step_it_is_the_inputs_or_the_model(precision: str) -> None:
    text = said(1, math.nan, precision)
    assert text.startswith("Training stopped: the loss is nan at step 1 (/checkpoints). ")
    assert "train.learning_rate is not the cause" in text
    assert "inputs are not finite" in text and "operation of the model" in text
    assert "float16" not in text and "Lower" not in text


def test_at_the_first_step_in_16_bits_it_is_what_does_not_fit() -> None:
    text = said(1, math.inf, "mixed_float16")
    assert "the loss is inf at step 1" in text
    assert "neither train.learning_rate nor the scale is the cause" in text
    assert "a value of the forward pass exceeds the range of float16" in text
    assert "Use parallel.precision: mixed_bfloat16 or float32." in text
    assert "Lower" not in text


def test_a_gradient_alone_may_not_fit() -> None:
    text = said(1, 2.5, "mixed_float16")
    assert "a gradient is not finite at step 1 (loss 2.5)" in text
    assert "a gradient exceeds the range of float16" in text


def test_later_it_is_the_learning_rate_first() -> None:
    advice = "Lower train.learning_rate, or raise train.warmup_steps."
    assert said(7, math.nan, "float32").endswith(f". {advice}")
    text = said(7, math.nan, "mixed_float16")
    assert advice in text and "parallel.precision: mixed_bfloat16 or float32" in text


def test_of_the_val_split() -> None:
    error = diverged.in_evaluation(4, math.inf, "float32", KEPT)
    assert (error.updates, error.loss) == (4, math.inf)
    assert "the loss on the val split is inf after step 4 (/checkpoints)" in str(error)
