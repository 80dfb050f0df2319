"""Models of the caller's, built again."""

from __future__ import annotations

import cloudpickle
import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft import copies, pickles
from stagecraft.common.errors import SettingError, UserError
from stagecraft.objects import model

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


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
        assert not made.compiled


def test_refusals():
    for given in (3, keras.Model):
        with pytest.raises(SettingError) as error:
            model.builder(given)
        assert error.value.setting == "train.model"
    with pytest.raises(UserError) as refused:
        model.compiled(lambda: 1 / 0)
    assert refused.value.setting == "train.model"


def scaled(factor: float):
    def activation(x):
        return keras.ops.tanh(factor * x)

    return activation


class Constant(keras.initializers.Initializer):
    def __init__(self, value: float):
        self.value = value

    def __call__(self, shape, dtype=None):
        return keras.ops.ones(shape, dtype) * self.value

    def get_config(self):
        return {"value": self.value}


class Penalty(keras.regularizers.Regularizer):
    def __call__(self, x):
        return keras.ops.sum(x)

    def get_config(self):
        return {}


def functional(factor: float = 2.0) -> keras.Model:
    inputs = keras.Input([4])
    hidden = keras.layers.Dense(
        3,
        activation=scaled(factor),
        kernel_initializer=Constant(0.5),
        kernel_regularizer=Penalty(),
    )(inputs)
    hidden = keras.layers.Activation(scaled(0.1))(hidden)
    shared = keras.layers.Lambda(lambda pair: keras.ops.maximum(*pair))
    return keras.Model(inputs, keras.layers.Lambda(lambda x: 3 * x)(shared([hidden, -hidden])))


def test_a_copy_has_the_functions_and_classes_of_the_model():
    given = functional()
    builder = model.builder(given)
    again = cloudpickle.loads(cloudpickle.dumps(builder))
    for made in (builder(), again(), again()):
        assert np.array_equal(made(X), given(X)) and not np.array_equal(made(X), 0 * given(X))
        assert made.losses == given.losses != []
    names = [layer.function.__name__ for layer in given.layers[-2:]]
    assert names == ["<lambda>", "<lambda>"]
    assert given.layers[1].activation.__name__ == "activation"


def test_the_code_of_functions_is_part_of_the_digest():
    built = []
    for factor in (2.0, 2.0, 3.0):
        keras.utils.clear_session()
        built.append(pickles.digest(model.builder(functional(factor))))
    assert built[0] == built[1] != built[2]


def test_an_argument_may_be_not_a_number():
    given = keras.Sequential([keras.Input([3, 4]), keras.layers.Masking(float("nan"))])
    assert np.isnan(model.builder(given)().layers[0].mask_value)


def test_a_copy_can_have_another_policy():
    given = keras.Sequential([keras.Input([4]), keras.layers.Dense(3), keras.layers.Dropout(0.5)])
    packed = pickles.dumps(given)
    made = copies.loads(packed, copies.Policies("float32", "float64"))
    assert {each.dtype for each in made.trainable_variables} == {"float64"}
    assert made(X).dtype == "float64" != given(X).dtype
    mixed = copies.loads(packed, copies.Policies("float32", "mixed_bfloat16"))
    assert (mixed.weights[0].dtype, mixed(X).dtype) == ("float32", "bfloat16")


def test_a_copy_knows_its_graph_and_its_optimizer():
    given = functional()
    given.compile("adam", "mse")
    given.fit(X, given(X), verbose=0)
    made = pickles.loads(pickles.dumps(given))
    assert [each.name for each in made.layers] == [each.name for each in given.layers]
    assert len(made.get_config()["layers"]) == len(given.get_config()["layers"]) > 2
    for each in (made, given):
        each.fit(X, X[:, :3], verbose=0)
    for one, two in zip(made.variables, given.variables, strict=True):
        assert np.array_equal(one, two)
    for one, two in zip(made.optimizer.variables, given.optimizer.variables, strict=True):
        assert np.array_equal(one, two)
    made.layers[1].kernel.trainable = False
    assert len(made.trainable_weights) == len(given.trainable_weights) - 1


def test_attributes_of_any_name():
    class Attention(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self._self_attention = keras.layers.Dense(4)

        def call(self, x):
            return self._self_attention(x)

    given = Attention()
    assert np.array_equal(given(X), pickles.loads(pickles.dumps(given))(X))


def test_a_deep_model():
    inputs = hidden = keras.Input([4])
    for _ in range(300):
        hidden = keras.layers.Dense(4)(hidden) + hidden
    given = keras.Model(inputs, hidden)
    assert np.array_equal(pickles.loads(pickles.dumps(given))(X), given(X))


def test_tables_of_a_users_layer():
    class Known(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["a", "b"], [3, 4]), default_value=-1
            )

        def call(self, x):
            return self.table.lookup(x)

    words = tf.constant(["b", "c", "a"])
    assert pickles.loads(pickles.dumps(Known()))(words).numpy().tolist() == [4, -1, 3]
