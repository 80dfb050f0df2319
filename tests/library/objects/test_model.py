"""Models of the caller's, built again."""

from __future__ import annotations

import keras
import pytest

from stagecraft.objects import model
from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.trainer_module.parallel.settings import ParallelSettings


def test_a_function_gets_the_arguments_that_it_has():
    def some(width: int = 3) -> int:
        return width

    assert model.Builder(some)(width=4, height=5) == 4
    assert model.Builder(lambda: 7)(width=4) == 7
    assert model.Builder(lambda **all_of_them: len(all_of_them))(width=4, height=5) == 2


def test_a_built_model_is_not_compiled():
    def some() -> keras.Model:
        made = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        made.compile("sgd", loss="mse", metrics=["mae"])
        return made

    found = model.compile_arguments(model.compiled(some))
    assert (found["loss"], found["metrics"]) == ("mse", ["mae"])
    for given in (some, some()):
        builder = model.builder(given)
        made = builder(not_for_it=3)
        assert not made.compiled and builder.paths == [each.path for each in made.weights]


def test_refusals():
    for given in (3, keras.Model):
        with pytest.raises(SettingError) as error:
            model.builder(given)
        assert error.value.setting == "train.model"
    with pytest.raises(UserError) as refused:
        model.compiled(lambda: 1 / 0)
    assert refused.value.setting == "train.model"


def test_auto_is_no_precision_of_a_script(messages):
    built = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    parallel = ParallelSettings(precision="auto")
    with messages.raises(SettingError) as error:
        model.precision_of(built, parallel)
    assert (error.value.setting, error.value.value) == ("parallel.precision", "auto")
