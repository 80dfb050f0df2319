import math

import pytest

from stagecraft.trainer_module.engines.step_metrics import NonFiniteLossError
from stagecraft.trainer_module.training import evaluator

KEPT = " (/checkpoints)"


@pytest.mark.parametrize(
    ("step", "loss", "precision"),
    [
        (1, math.nan, "float32"),
        (1, math.nan, "float64"),
        (1, math.nan, "mixed_bfloat16"),
        (1, math.inf, "mixed_float16"),
        (1, 2.5, "mixed_float16"),
        (7, math.nan, "float32"),
        (7, math.nan, "mixed_float16"),
    ],
)
def test_the_cause_depends_on_step_and_precision(step, loss, precision):
    error = evaluator.in_training(NonFiniteLossError(step, loss), precision, KEPT)
    assert (error.updates, error.precision) == (step - 1, precision)
    # Before the first update, the learning rate is not the cause.
    assert ("Lower train.learning_rate" in str(error)) == (step > 1)


def test_of_the_val_split():
    error = evaluator.in_evaluation(4, math.inf, "float32", KEPT)
    assert (error.updates, error.loss) == (4, math.inf)
