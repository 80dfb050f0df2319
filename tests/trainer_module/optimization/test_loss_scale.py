import math

import pytest
import tensorflow as tf

from stagecraft.trainer_module.optimization import loss_scale
from stagecraft.trainer_module.optimization.loss_scale import LossScale, all_finite


def _numbers(scale: LossScale) -> tuple[float, ...]:
    return tuple(float(variable) for variable in scale.variables().values())


def test_halves_when_a_gradient_is_not_finite():
    scale = LossScale()
    scale.update(tf.constant(True))
    assert _numbers(scale) == (loss_scale.INITIAL, 1, 0)
    assert bool(scale.update(tf.constant(False)))
    assert _numbers(scale) == (loss_scale.INITIAL / 2, 0, 1)
    assert float(scale.value) == loss_scale.INITIAL / 2
    assert int(scale.skipped) == 1


def test_doubles_after_enough_good_steps_in_a_row(monkeypatch):
    monkeypatch.setattr(loss_scale, "GROWTH_STEPS", 3)
    scale = LossScale()
    scales = []
    for finite in (True, True, False, True, True, True, True):
        assert bool(scale.update(tf.constant(finite)))
        scales.append(float(scale.value) / loss_scale.INITIAL)
    assert scales == [1, 1, 0.5, 0.5, 0.5, 1, 1]
    assert _numbers(scale)[1:] == (1, 1)


def test_a_scale_of_one_cannot_be_the_cause():
    scale = LossScale()
    scale.variables()["loss_scale/scale"].assign(2.0)
    assert bool(scale.update(tf.constant(False)))
    assert not bool(scale.update(tf.constant(False)))
    assert float(scale.value) == 1
    assert bool(scale.update(tf.constant(True)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_entry_decides(value):
    good = [tf.zeros([3, 4]), tf.constant([1.0, 65504.0], tf.float16)]
    assert bool(all_finite(good))
    assert not bool(all_finite([*good, tf.constant([0.0, value])]))
