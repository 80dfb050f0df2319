"""What ``parallelize`` refuses before it changes anything."""

import keras
import pytest

import stagecraft as sc
from stagecraft.schemas.errors import SettingError


def model():
    given = keras.Input((4,))
    return keras.Model(given, keras.layers.Dense(3)(given))


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"strategy": "multi_worker_mirrored", "workers": 2}, "parallel.strategy"),
        ({"strategy": "grid", "workers": 2}, "parallel.workers"),
        ({"strategy": "grid", "shards": 2}, "parallel.shards"),
        ({"precision": "mixed_bfloat16"}, "parallel.precision"),
    ],
)
def test_settings_without_an_effect_are_refused(settings, setting):
    with pytest.raises(SettingError) as caught:
        sc.parallelize(model(), sc.Parallel(**settings))
    assert caught.value.setting == setting


def test_only_models_are_parallelized():
    with pytest.raises(SettingError) as caught:
        sc.parallelize(keras.layers.Dense(3), sc.Parallel())
    assert (caught.value.setting, caught.value.value) == ("model", "Dense")
