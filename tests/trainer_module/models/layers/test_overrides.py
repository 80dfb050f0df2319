import types
from typing import Any

import keras
import pytest

from stagecraft.trainer_module.models.layers import overrides
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError


class Plain(keras.Model):
    """A call, and nothing else."""

    def call(self, inputs: Any) -> Any:
        return inputs


def functional() -> keras.Model:
    images = keras.Input((4,))
    return keras.Model(images, keras.layers.Dense(2)(images), name="mine")


def test_models_that_leave_the_training_to_us_pass():
    overrides.check([functional(), Plain(), keras.Sequential([keras.layers.Dense(2)])])


@pytest.mark.parametrize(
    "method", ["train_step", "test_step", "compute_loss", "compute_metrics", "fit"]
)
def test_a_method_that_would_not_be_called_is_refused(method):
    kind = type("Mine", (Plain,), {method: lambda self, *args, **kwargs: None})
    with pytest.raises(ModelRefusedError) as caught:
        overrides.check([functional(), type("Derived", (kind,), {})()])
    assert caught.value.part == f"Mine.{method}"


def test_a_method_that_is_set_on_the_model_is_refused():
    model = functional()
    model.train_step = types.MethodType(lambda self, data: {}, model)
    with pytest.raises(ModelRefusedError) as caught:
        overrides.check([model])
    assert caught.value.part == "mine.train_step"


def test_a_compiled_model_is_refused_with_what_it_was_compiled_with():
    model = functional()
    model.compile(keras.optimizers.Adam(), "mse")
    with pytest.raises(ModelRefusedError) as caught:
        overrides.check([model])
    assert caught.value.part == "mine"
    assert "optimizer=adam" in caught.value.reason
    assert "loss=mse" in caught.value.reason
    assert "train.optimizer" in caught.value.advice


def test_stateful_layers_are_refused():
    layers = [keras.layers.LSTM(3, stateful=True, name="goes_on"), keras.layers.Dense(2)]
    with pytest.raises(ModelRefusedError) as caught:
        overrides.check([keras.Sequential([keras.Input((2, 2), batch_size=2), *layers])])
    assert caught.value.part == "goes_on (LSTM)"
