from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf
from catalogue.others import _Draws as Draws, _Largest_so_far as Largest

from stagecraft.trainer_module.engines import divisibility
from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
from stagecraft.trainer_module.pipeline_parallel.stage import Stage
from stagecraft.trainer_module.settings import ParallelSettings

L = keras.layers


class Adds(L.Layer):
    """Adds a loss."""

    def __init__(self, function: Callable[[Any], Any], name: str = "adds"):
        super().__init__(name=name)
        self.function = function

    def call(self, inputs: Any) -> Any:
        self.add_loss(self.function(inputs))
        return inputs


def model_of(*layers: Any) -> keras.Model:
    return keras.Sequential([keras.Input((4,)), L.Dense(3), *layers, L.Dense(2)])


def checked(model: keras.Model, parts: int = 2, **parallel: Any) -> Stage:
    dropout.key_layers(model, 0)
    stage = Stage(model, parts=parts, remat=parallel.get("remat", False))
    divisibility.check([stage], ParallelSettings(**parallel))
    return stage


def refusal(*layers: Any, **parallel: Any) -> ModelRefusedError:
    with pytest.raises(ModelRefusedError) as caught:
        checked(model_of(*layers), **parallel)
    return caught.value


@pytest.mark.parametrize(
    ("function", "summed"),
    [
        (lambda x: keras.ops.sum(x**2), {0}),
        (lambda x: keras.ops.mean(x**2), set()),
        (lambda x: keras.ops.mean(x**2, axis=-1), {0}),  # Keras adds up what is no scalar
        (lambda x: 3.0 + 0 * keras.ops.mean(x), set()),
    ],
    ids=["sum", "mean", "per example", "constant"],
)
def test_a_loss_is_a_sum_or_a_mean(function, summed):
    assert checked(model_of(Adds(function))).segments[0].summed == summed


def test_each_loss_of_a_layer_is_told_by_itself():
    layers = [
        Adds(keras.ops.mean, "first"),
        Adds(lambda x: keras.ops.sum(x**2), "second"),
        L.BatchNormalization(),
        Adds(keras.ops.sum, "last"),
    ]
    assert checked(model_of(*layers)).segments[0].summed == {1, 2}


@pytest.mark.parametrize(
    "function",
    [keras.ops.max, lambda x: keras.ops.sum(keras.ops.var(x, axis=0)), lambda x: 0.0 * x],
    ids=["maximum", "variance", "zero"],
)
def test_what_is_neither_sum_nor_mean_is_refused_where_a_batch_is_divided(function):
    assert "loss" in refusal(Adds(function)).reason
    checked(model_of(Adds(function)), parts=1)


class Balanced(L.Layer):
    """Adds the loss of a mixture of experts that balances their load: a product of two means."""

    def build(self, shape: Any) -> None:
        self.router = L.Dense(4, use_bias=False)
        self.router.build(shape)

    def call(self, inputs: Any) -> Any:
        shares = keras.ops.softmax(self.router(inputs))
        first = keras.ops.one_hot(keras.ops.argmax(shares, -1), 4)
        means = [keras.ops.mean(each, axis=(0, 1)) for each in (first, shares)]
        self.add_loss(0.02 * keras.ops.sum(means[0] * means[1]))
        return inputs


def test_a_product_of_means_over_a_mixture_of_experts_is_refused():
    ids = keras.Input((None,), dtype="int32")
    hidden = L.UnitNormalization()(L.Embedding(60, 16)(ids))
    model = keras.Model(ids, L.Dense(60)(Balanced(name="experts")(hidden)))
    with pytest.raises(ModelRefusedError) as caught:
        checked(model)
    assert caught.value.part == "experts"


def test_a_layer_that_mixes_examples_is_named():
    def centred(x: Any) -> Any:
        return x - keras.ops.mean(x, axis=0, keepdims=True)

    assert refusal(L.Dense(3), L.Lambda(centred, name="centred")).part == "centred"
    checked(model_of(L.Lambda(centred)), parts=1)


def test_code_between_layers_that_mixes_examples_is_refused():
    class Centred(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = L.Dense(3, name="first"), L.Dense(2, name="last")

        def call(self, inputs: Any) -> Any:
            hidden = self.first(inputs)
            return self.last(hidden - keras.ops.mean(hidden, axis=0))

    model = Centred()
    model(tf.zeros([1, 32, 32, 3]))
    with pytest.raises(ModelRefusedError) as caught:
        checked(model)
    assert caught.value.part.removeprefix("the ") == "input of last"


def test_layers_that_may_be_divided_are_not_refused():
    spectral = L.SpectralNormalization(L.Dense(3))
    for layer in (L.BatchNormalization(), L.LayerNormalization(), L.Dropout(0.5), spectral):
        checked(model_of(layer, L.Dense(3, activation="relu")))


def test_a_layer_that_draws_by_itself_hides_nothing_behind_it():
    assert checked(model_of(Draws(), Adds(keras.ops.sum))).segments[0].summed == {0}
    centred = L.Lambda(lambda x: x - keras.ops.mean(x, axis=0), name="centred")
    assert refusal(Draws(), centred).part == "centred"


def test_a_state_that_is_no_mean_is_refused_where_a_batch_is_divided():
    assert refusal(Largest(name="biggest")).part.endswith("biggest/variable'")
    checked(model_of(Largest()), parts=1)


def test_draws_without_a_seed_are_refused():
    unseeded = L.Lambda(lambda x: x + keras.random.normal((3,)), name="noisy")
    assert "SeedGenerator" in refusal(unseeded, parts=1).advice


def test_a_tf_variable_that_a_layer_assigns_is_refused():
    calls = tf.Variable(0.0)

    class Counts(L.Layer):
        def call(self, inputs: Any) -> Any:
            calls.assign_add(1.0)
            return inputs

    for before in ((), (L.Lambda(abs, name="size"),)):
        assert "counts" in str(refusal(*before, Counts(name="counts"), parts=1))
    assert calls.numpy() == 0


def test_draws_of_tensorflow_are_refused_under_remat_alone():
    def noisy(x: Any) -> Any:
        return x + tf.random.normal(tf.shape(x))

    assert "remat" in refusal(L.Lambda(noisy, name="noisy"), parts=1, remat=True).reason
    checked(model_of(L.Lambda(noisy)), parts=1)


def test_synchronized_statistics_are_refused_where_keras_would_not_know_of_the_others():
    layer = {"synchronized": True, "name": "norm"}
    grid = {"strategy": "grid", "replicas": 2}
    assert refusal(L.BatchNormalization(**layer), **grid).part == "norm"
    assert refusal(L.BatchNormalization(**layer), accumulate=2).part == "norm"
    checked(model_of(L.BatchNormalization(**layer)), strategy="mirrored", replicas=2)


def test_layers_are_as_before_when_they_have_been_examined():
    model = model_of(L.BatchNormalization(name="norm"), L.Dropout(0.5, name="drop"))
    before = [variable.numpy().tolist() for variable in model.variables]
    checked(model)
    assert "call" not in vars(model.get_layer("norm"))
    assert "call" in vars(model.get_layer("drop"))  # its draws are keyed
    assert [variable.numpy().tolist() for variable in model.variables] == before
