"""Weights that lie on several devices: what optimizers, callers and threads see of it."""

from __future__ import annotations

import concurrent.futures
import functools
import gc
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import stagecraft as sc
from stagecraft.common.errors import SettingError
from stagecraft.parallel_model import workers
from stagecraft.trainer_module.tensor_parallel import model_shards

pytestmark = pytest.mark.usefixtures("in_float64", "divides_small_layers")

ROWS = 13
X = np.random.default_rng(0).normal(size=(ROWS, 8))
Y = np.random.default_rng(1).integers(0, 3, ROWS)
STAGES = sc.Parallel(strategy="grid", stages=2)
SHARDS = sc.Parallel(strategy="grid", shards=2)
ZERO = sc.Parallel(strategy="grid", replicas=2, zero=1)


@pytest.fixture
def divides_small_layers(monkeypatch):
    monkeypatch.setattr(model_shards, "LEAST_PARAMETERS", 1)


def mlp(*between):
    hidden = [layers.Dense(6, "relu", name="first"), *between, layers.Dense(3, name="last")]
    return keras.Sequential([keras.Input((8,)), layers.LayerNormalization(name="norm"), *hidden])


def fit(model, epochs=2):
    model.fit(X, Y, batch_size=5, epochs=epochs, shuffle=False, verbose=0)


def compiled(model, optimizer):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=[])


def trained(make, place):
    model = make()
    compiled(model, "sgd")
    fit(place(model))
    return model.get_weights()


def check(train, parallel):
    """``train(place)`` gives numbers; ``place`` puts a model on a topology, or leaves it."""
    keras.utils.set_random_seed(0)
    expected = train(lambda model: model)
    keras.utils.set_random_seed(0)
    found = train(lambda model: sc.parallelize(model, parallel))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("parallel", [STAGES, ZERO], ids=["stages", "zero"])
@pytest.mark.parametrize("names", [True, False])
def test_weights_without_decay(names, parallel):
    def train(place):
        model, optimizer = mlp(), keras.optimizers.AdamW(0.01, weight_decay=0.5)
        if names:
            optimizer.exclude_from_weight_decay(var_names=["norm"])
        else:
            optimizer.exclude_from_weight_decay(var_list=[model.layers[-1].kernel])
        compiled(model, optimizer)
        fit(place(model))
        return model.get_weights()

    check(train, parallel)


@pytest.mark.parametrize("parallel", [STAGES, SHARDS, ZERO], ids=["stages", "shards", "zero"])
@pytest.mark.parametrize("make", [keras.optimizers.Adafactor, keras.optimizers.SGD])
def test_state_of_other_shapes(make, parallel):
    def train(place):
        model = keras.Sequential([keras.Input((8,)), layers.Dense(4), layers.Dense(3)])
        compiled(model, make(0.01))
        fit(place(model))
        return model.get_weights()

    check(train, parallel)


def test_a_loss_scale_of_mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4), layers.Dense(3)])
    compiled(model, "adam")
    fit(sc.parallelize(model, ZERO))
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    assert model.optimizer.iterations == 6


class OwnOptimizers(keras.Model):
    """Two optimizers, and a step that calls the layers themselves."""

    def __init__(self):
        super().__init__()
        self.one, self.two = layers.Dense(6), layers.Dense(3)
        self.first, self.second = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1)

    def call(self, inputs):
        return self.two(self.one(inputs))

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape(persistent=True) as tape:
            outputs = self(inputs, training=True)
            loss = ops.mean(ops.sparse_categorical_crossentropy(targets, outputs, True))
        for optimizer, layer in ((self.first, self.one), (self.second, self.two)):
            weights = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


class Apart(OwnOptimizers):
    """Its step does not call the model."""

    def train_step(self, data):
        inputs, _ = data
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self.two(self.one(inputs))))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


@pytest.mark.parametrize("kind", [OwnOptimizers, Apart])
@pytest.mark.parametrize(
    "parallel",
    [STAGES, SHARDS, sc.Parallel(strategy="mirrored", replicas=2, remat=True)],
    ids=["stages", "shards", "mirrored"],
)
def test_a_step_of_ones_own(kind, parallel):
    def train(place):
        model = kind()
        model.compile("adam")
        fit(place(model))
        return model.get_weights()

    check(train, parallel)


def test_an_adapter_and_an_activation_of_later():
    def train(place):
        model = mlp()
        compiled(model, "sgd")
        fit(place(model))
        model.get_layer("first").activation = keras.activations.tanh
        model.get_layer("last").enable_lora(2)
        compiled(model, "sgd")
        fit(model)
        return [*model.get_weights(), model.predict(X, verbose=0)]

    check(train, SHARDS)


def test_a_call_that_somebody_has_replaced():
    def train(place):
        dropout = layers.Dropout(0.5, seed=3)
        dropout.call = lambda inputs, training=None: 2 * inputs
        model = mlp(dropout)
        compiled(model, "sgd")
        fit(place(model))
        return [*model.get_weights(), model.predict(X, verbose=0)]

    check(train, SHARDS)


class Nested(keras.Model):
    """Calls a layer, and the layer inside of it."""

    def __init__(self):
        super().__init__()
        self.outer = keras.Sequential([layers.Dense(8), layers.Dense(8)])
        self.inner, self.last = self.outer.layers[0], layers.Dense(3)

    def call(self, inputs):
        return self.last(self.outer(inputs) + self.inner(inputs))


@pytest.mark.parametrize(
    "parallel",
    [
        STAGES,
        sc.Parallel(strategy="grid", stages=2, shards=2),
        SHARDS.model_copy(update={"remat": True}),
    ],
    ids=["stages", "both", "remat"],
)
def test_a_unit_that_calls_another_one(parallel):
    check(functools.partial(trained, Nested), parallel)


class Branches(keras.Model):
    """Uses a divided tensor in two branches of a condition."""

    def __init__(self):
        super().__init__()
        self.dense, self.one, self.two = layers.Dense(6), layers.Dense(3), layers.Dense(3)

    def build(self, shape):
        self.dense.build(shape)
        self.one.build((None, 6))
        self.two.build((None, 6))

    def call(self, inputs):
        hidden = ops.relu(self.dense(inputs))
        positive = ops.sum(inputs) > 0
        return ops.cond(positive, lambda: self.one(hidden), lambda: self.two(hidden))


def test_branches():
    check(functools.partial(trained, Branches), SHARDS)


def test_none_in_a_batch():
    def train(place):
        def batches():
            while True:
                yield X[:4], Y[:4], None

        model = keras.Sequential([layers.Dense(6), layers.Dense(3)])
        compiled(model, "sgd")
        place(model).fit(batches(), steps_per_epoch=3, verbose=0)
        return model.get_weights()

    check(train, STAGES)
    check(train, sc.Parallel(strategy="mirrored", replicas=2))


def test_no_garbage_collection_while_a_step_is_traced():
    collects = []

    class Watching(layers.Layer):
        def call(self, inputs):
            collects.append(gc.isenabled())
            return inputs

    model = keras.Sequential([keras.Input(X.shape[1:]), Watching(), layers.Dense(3)])
    compiled(model, "sgd")
    collects.clear()
    sc.parallelize(model, sc.Parallel(strategy="mirrored", replicas=2)).fit(X, Y, verbose=0)
    assert collects and not any(collects) and gc.isenabled()


@pytest.fixture
def short_turns():
    """Threads take turns within a step."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def test_threads_train_models_of_their_own(short_turns):
    initial = mlp().get_weights()

    def train(_):
        model = mlp()
        model.set_weights(initial)
        compiled(model, "adam")
        model.run_eagerly = True
        fit(sc.parallelize(model, STAGES), epochs=4)
        return model.get_weights()

    expected = train(None)
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        for found in threads.map(train, range(3)):
            for weights, of_one in zip(found, expected, strict=True):
                np.testing.assert_allclose(weights, of_one, rtol=1e-12)


def test_one_device_gets_all_variables_back():
    model = mlp()
    compiled(model, "adam")
    fit(sc.parallelize(model, STAGES))
    sc.parallelize(model)
    variables = [*model.variables, *model.optimizer.variables]
    assert {each.value.device[-5:] for each in variables} == {"CPU:0"}
    model.jit_compile = True
    fit(model)


def test_a_refusal_stays():
    model = keras.Sequential([keras.Input((8,)), layers.LayerNormalization()])
    model.compile("sgd", "mse")
    sc.parallelize(model, SHARDS)
    for _ in range(2):
        with pytest.raises(SettingError) as caught:
            model.predict(X, verbose=0)
        assert caught.value.setting == "parallel.shards"


def test_shards_of_workers(monkeypatch):
    known = sc.Parallel(strategy="grid", workers=2)
    joined = workers.Topology(strategy="grid", devices=("CPU:0",), workers=2, worker=1)
    monkeypatch.setattr(workers, "_connected", [(known, joined)])
    _, devices = workers.connected(sc.Parallel(strategy="grid", workers=2, stages=2, shards=2))
    assert (devices.replicas, devices.shards, devices.worker) == (1, 2, 1)
    assert devices.device(0, 1, 1) == "CPU:3"
