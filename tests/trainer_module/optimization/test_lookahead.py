import keras
import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from stagecraft.common.errors import SettingError, setting_error
from stagecraft.trainer_module.optimization import averages
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings


def test_the_decay_is_that_of_the_paper():
    # The schedule of legacy/airbench94.py, for a pull after every fifth of 1,000 steps.
    expected = 0.95**5 * (np.arange(1001) / 1000) ** 3
    for step in (5, 500, 1000):
        found = averages.lookahead_decay(5, tf.constant(step, tf.int64), 1000, tf.float64)
        assert float(found) == pytest.approx(expected[step], rel=1e-15)
    late = averages.lookahead_decay(5, tf.constant(2000, tf.int64), 1000, tf.float32)
    assert float(late) == pytest.approx(0.95**5)


def test_a_pull_is_due_after_every_few_steps():
    due = [bool(averages.pull_is_due(3, tf.constant(done, tf.int64))) for done in range(1, 8)]
    assert due == [False, False, True, False, False, True, False]


def test_a_pull_moves_both():
    weight = keras.Variable(np.asarray([1.0, -2.0]))
    (slow,) = averages.create([weight])
    weight.assign([3.0, 2.0])
    averages.pull(slow, weight.value, tf.constant(0.75), None)
    np.testing.assert_array_equal(slow, [1.5, -1.0])
    np.testing.assert_array_equal(weight.numpy(), [1.5, -1.0])
    weight.assign([3.0, -3.0])
    averages.pull(slow, weight.value, tf.constant(0.0), keras.constraints.NonNeg())
    np.testing.assert_array_equal(slow, [3.0, 0.0])
    np.testing.assert_array_equal(weight.numpy(), [3.0, 0.0])


def test_which_variables_have_averages():
    weight = keras.Variable(np.ones(2, np.float32))
    moving, seed = keras.Variable(np.ones(2, np.float32)), keras.Variable(np.ones(2, np.int64))

    def found(**train):
        return [*map(id, averages.averaged(TrainSettings(**train), [weight], [moving, seed]))]

    assert found() == []
    assert found(ema_decay=0.9) == [id(weight)]
    assert found(lookahead=5) == [id(weight), id(moving)]


def test_workers_on_their_own_are_refused():
    given = {"parallel": {"strategy": "parameter_server", "workers": 2}}
    with pytest.raises(ValidationError) as caught:
        TrainingSettings.model_validate({**given, "train": {"lookahead": 5}})
    error = setting_error(caught.value.errors()[0])
    assert (error.setting, error.value) == ("train.lookahead", 5)
    assert "train.ema_decay" in error.suggestion
    TrainingSettings.model_validate({**given, "train": {"lookahead": 0}})


def test_the_length_is_checked_where_it_is_known():
    train = TrainSettings(lookahead=6, epochs=1)
    train.check_length(6)
    with pytest.raises(SettingError) as caught:
        train.check_length(5)
    assert (caught.value.setting, caught.value.value) == ("train.lookahead", 6)
    assert "5" in caught.value.suggestion
