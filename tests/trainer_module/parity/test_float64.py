from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from model_arguments import classes

from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.parity.worker import float64_exceptions, forced_precision
from stagecraft.trainer_module.settings import TrainSettings


def _float64(model: str) -> keras.Model:
    return assemble(TrainSettings(model=f"parity_models:{model}"), classes(10), precision="float64")


@pytest.fixture
def _policy() -> Any:
    before = keras.config.dtype_policy(), keras.config.floatx()
    keras.config.set_dtype_policy("float64")
    keras.config.set_floatx("float64")
    yield
    keras.config.set_dtype_policy(before[0])
    keras.config.set_floatx(before[1])


def test_a_float32_head_is_float64_in_the_block_and_nowhere_else():
    with forced_precision("float64"):
        model = _float64("float32_head")
        assert {variable.dtype for variable in model.variables} == {"float64"}
        assert model(np.zeros((1, 32, 32, 3))).dtype == "float64"
        assert float64_exceptions(model) == []
    assert keras.layers.Dense(1, dtype="float32").compute_dtype == "float32"
    outside = _float64("float32_head")
    assert outside.get_layer("head").variable_dtype == "float32"


def test_other_precisions_are_left_alone():
    with forced_precision("float32"):
        assert keras.layers.Dense(1, dtype="float64").compute_dtype == "float64"
        assert keras.layers.Dense(1, dtype="mixed_bfloat16").compute_dtype == "bfloat16"


def test_an_error_restores_the_policies():
    with pytest.raises(RuntimeError), forced_precision("float64"):
        raise RuntimeError
    assert keras.DTypePolicy("mixed_float16").compute_dtype == "float16"


def _later(layer: keras.layers.Layer) -> keras.layers.Layer:
    layer.dtype_policy = "float32"
    return layer


DTYPES: list[Callable[[], keras.layers.Layer]] = [
    lambda: keras.layers.Dense(2, dtype="float32"),
    lambda: keras.layers.Dense(2, dtype="mixed_float16"),
    lambda: keras.layers.Dense(2, dtype=keras.DTypePolicy("bfloat16")),
    lambda: keras.layers.Dense(
        2, dtype={"class_name": "DTypePolicy", "config": {"name": "float32"}}
    ),
    lambda: keras.layers.Dense(2, dtype=keras.dtype_policies.DTypePolicyMap("float32")),
    lambda: _later(keras.layers.Dense(2)),
    lambda: keras.layers.MultiHeadAttention(1, 2, dtype="float32"),
    lambda: keras.layers.BatchNormalization(dtype="float32"),
    lambda: keras.layers.TimeDistributed(keras.layers.Dense(2, dtype="float32")),
    lambda: keras.layers.LSTM(2, return_sequences=True, dtype="float32"),
]


@pytest.mark.usefixtures("_policy")
@pytest.mark.parametrize("make", DTYPES)
def test_however_a_dtype_is_given(make):
    with forced_precision("float64"):
        layer = make()
        inputs = keras.ops.ones((3, 4, 2), "float64")
        twice = isinstance(layer, keras.layers.MultiHeadAttention)
        outputs = layer(inputs, inputs) if twice else layer(inputs)
        assert outputs.dtype == "float64"
        floats = [v.dtype for v in layer.variables if "float" in v.dtype]
        assert floats
        assert set(floats) == {"float64"}


def test_what_is_no_float_stays():
    with forced_precision("float64"):
        assert keras.DTypePolicy("int32").compute_dtype == "int32"
        assert keras.dtype_policies.get("int8_from_float32").compute_dtype == "float32"


def test_a_cast_in_code_is_named():
    with forced_precision("float64"):
        assert float64_exceptions(_float64("cast_inside")) == ["cast"]


class OwnDtype(keras.layers.Layer):
    """A weight that is float32 whatever the policy is."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(1,), dtype="float32", name="scale")

    def call(self, inputs: Any) -> Any:
        return inputs * self.scale


@pytest.mark.usefixtures("_policy")
def test_a_variable_of_its_own_dtype_is_named():
    with forced_precision("float64"):
        images = keras.Input((32, 32, 3))
        model = keras.Model(images, keras.layers.Flatten()(OwnDtype(name="own")(images)))
        assert float64_exceptions(model) == ["own/scale"]


@pytest.mark.usefixtures("_policy")
def test_float32_pictures_are_no_loss():
    with forced_precision("float64"):
        images = keras.Input((32, 32, 3), dtype="float32")
        hidden = keras.layers.Dense(2)(keras.layers.Flatten()(images))
        assert float64_exceptions(keras.Model(images, hidden)) == []


@pytest.mark.usefixtures("_policy")
def test_a_subclassed_model_is_looked_through():
    class Casts(keras.Model):
        """Casts in a model's code."""

        def call(self, images: Any) -> Any:
            flat = keras.ops.reshape(images, (-1, 3072))
            return keras.ops.cast(keras.ops.cast(flat, "bfloat16"), "float64")

    with forced_precision("float64"):
        model = Casts(name="casts")
        model(np.zeros((1, 32, 32, 3)))
        assert float64_exceptions(model) == ["casts"]
