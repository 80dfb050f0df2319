import math

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.engines.engine import learning_rate
from stagecraft.trainer_module.settings import TrainSettings

TOTAL = 100


def _rates(total: int = TOTAL, **settings) -> np.ndarray:
    rate = learning_rate(TrainSettings(learning_rate=0.5, **settings), total)
    return rate(tf.range(total, dtype=tf.int64)).numpy()


def test_constant():
    np.testing.assert_array_equal(_rates(schedule="constant"), 0.5)


def test_cosine_begins_at_the_peak_and_ends_next_to_zero():
    expected = [0.25 * (1 + math.cos(math.pi * step / TOTAL)) for step in range(TOTAL)]
    # Four float32 operations on values up to 2 * 0.5.
    np.testing.assert_allclose(_rates(schedule="cosine"), expected, rtol=0, atol=4 * 2**-24)


def test_one_cycle_rises_for_thirty_percent_and_falls_to_next_to_zero():
    rates = _rates(schedule="one_cycle")
    np.testing.assert_allclose(rates[:30], 0.5 * np.arange(1, 31) / 30, rtol=3e-7)
    np.testing.assert_allclose(rates[30:], 0.5 * np.arange(70, 0, -1) / 70, rtol=3e-6)


def test_one_cycle_takes_a_given_warm_up():
    rates = _rates(schedule="one_cycle", warmup_steps=10)
    assert rates.argmax() == 9
    assert rates[0] == pytest.approx(0.05)


def test_triangular_rises_from_a_fifth_and_falls_to_seven_percent():
    rates = _rates(schedule="triangular")
    rise = 0.2 + 0.8 * np.arange(1, 24) / 23
    # Up to 6 float32 operations on values up to 1.
    np.testing.assert_allclose(rates[:23], 0.5 * rise, rtol=6 * 2**-24)
    np.testing.assert_allclose(rates[23:], 0.5 * (1 - 0.93 * np.arange(77) / 77), rtol=6 * 2**-24)


def test_triangular_takes_other_ends_and_another_warm_up():
    ends = {"start": 0, "end": 1}
    rates = _rates(schedule="triangular", schedule_args=ends, warmup_steps=50)
    np.testing.assert_allclose(rates[:50], 0.5 * np.arange(1, 51) / 50, rtol=3e-7)
    np.testing.assert_array_equal(rates[50:], 0.5)


def test_triangular_from_one_to_zero_is_one_cycle_after_the_peak():
    ends = {"start": 1, "end": 0}
    rates = _rates(schedule="triangular", schedule_args=ends, warmup_steps=30)
    np.testing.assert_array_equal(rates[:30], 0.5)
    np.testing.assert_allclose(rates[30:], _rates(schedule="one_cycle")[30:], rtol=3e-6)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"start": 1.5}, 1.5),
        ({"end": -0.1}, -0.1),
        ({"end": True}, True),
        ({"start": "0.2"}, "0.2"),
        ({"peak": 0.3}, "peak"),
    ],
)
def test_what_triangular_does_not_take_is_refused(arguments, value):
    error = refusal(TrainSettings, {"schedule": "triangular", "schedule_args": arguments})
    assert (error.setting, error.value) == ("train.schedule_args", value)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "one_cycle", "triangular"])
@pytest.mark.parametrize("total", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_every_rate_is_positive_and_at_most_the_peak(schedule, total, warmup):
    rates = _rates(total, schedule=schedule, warmup_steps=min(warmup, total))
    assert (rates > 0).all()
    assert (rates <= 0.5).all()
    assert rates.max() == 0.5


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_warm_up_is_linear(schedule):
    rates = _rates(schedule=schedule, warmup_steps=20)
    np.testing.assert_allclose(rates[:20], 0.5 * np.arange(1, 21) / 20, rtol=3e-7)
    assert rates[20] == 0.5


def test_in_a_graph_with_an_int64_variable():
    rate = learning_rate(TrainSettings(schedule="one_cycle"), TOTAL)
    step = tf.Variable(17, dtype=tf.int64)
    value = tf.function(lambda: rate(step))()
    assert value.dtype == tf.float32
    assert value.shape == ()
    assert float(value) == float(rate(17))


def test_late_steps_of_a_very_long_training_stay_apart():
    total = 2**40
    rate = learning_rate(TrainSettings(learning_rate=1, schedule="one_cycle"), total)
    assert float(rate(total - 1)) >= 0
    assert float(rate(total // 2)) == pytest.approx(0.5 / 0.7)


def test_a_warm_up_longer_than_the_training_is_refused():
    with pytest.raises(UserError) as caught:
        learning_rate(TrainSettings(warmup_steps=101), TOTAL)
    assert caught.value.setting == "train.warmup_steps"
