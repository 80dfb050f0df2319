"""Spaces of a search: lists, ranges, and KerasTuner's own."""

import keras_tuner
import pytest

from stagecraft import tuning
from stagecraft.common.errors import SettingError


def test_a_mapping():
    found = tuning.parse(
        {
            "parallel.stages": [1, 2],
            "train.optimizer": ["sgd", "adam"],
            "parallel.jit": [True, False],
            "train.batch_size": {"min": 8, "max": 32, "step": 8},
            "train.learning_rate": {"min": 1e-4, "max": 0.1, "log": True},
        }
    )
    kinds = {each.name: type(each).__name__ for each in found.space}
    assert kinds == {
        "parallel.stages": "Choice",
        "train.optimizer": "Choice",
        "parallel.jit": "Choice",
        "train.batch_size": "Int",
        "train.learning_rate": "Float",
    }
    sizes, rate = found.space[3], found.space[4]
    assert list(sizes.values) == [8, 16, 24, 32] and rate.sampling == "log"


def test_keras_tuners_own():
    given = keras_tuner.HyperParameters()
    given.Int("units", 8, 64)
    given.Choice("parallel.stages", [1, 2])
    assert tuning.parse(given) is given
    given.Choice("parallel.stagse", [1, 2])
    with pytest.raises(SettingError) as error:
        tuning.parse(given)
    assert error.value.suggestion == "parallel.stages"
