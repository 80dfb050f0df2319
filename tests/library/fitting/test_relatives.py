"""``engine``, ``plan`` and ``virtual_devices``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((20, 2)).astype(np.float32)


pytestmark = pytest.mark.usefixtures("as_before")


def build() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def test_an_engine_steps_as_fit():
    model, twin = build(), build()
    twin.set_weights(model.get_weights())
    with sc.engine(model, "mse", keras.optimizers.Adam(0.01), batch_size=8, metrics=["mae"]) as it:
        state = it.state()
        logs = [it.train_step((X[at : at + 8], Y[at : at + 8])) for at in (0, 8, 16)]
        assert it.step == 3 and it.learning_rate == pytest.approx(0.01)
        assert logs[0].keys() == {"loss", "mae"}
        trained = it.weights()
        evaluated = it.evaluate(X, Y)
        assert it.evaluate(tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)) == pytest.approx(
            evaluated
        )
        np.testing.assert_allclose(it.predict(X), it.model()(X), rtol=1e-6)
        it.restore(state)
        assert it.step == 0
        for batch in ((X, Y), (X,), X):
            with pytest.raises(sc.SettingError) as caught:
                it.train_step(batch)
            assert caught.value.setting == "batch"
        with pytest.raises(sc.SettingError):
            it.restore({"step": np.array(1)})
    optimizer = keras.optimizers.Adam(0.01)
    sc.fit(twin, X, Y, loss="mse", optimizer=optimizer, batch_size=8, shuffle=False, verbose=0)
    for one, two in zip(trained, twin.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


@keras.saving.register_keras_serializable("tests")
class Centred(keras.layers.Layer):
    """Subtracts the mean of the batch, without any state; by default, the weight hides it."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.share = self.add_weight(shape=(), initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs - self.share * keras.ops.mean(inputs, axis=0, keepdims=True)


def with_layer(layer: Any) -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), layer])


def contrastive(targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(outputs - tf.reduce_mean(outputs, axis=0)), axis=-1)


COUNTING: dict[str, tuple[Callable[[], keras.Model], Any, bool]] = {
    "moving statistics": (lambda: with_layer(keras.layers.BatchNormalization()), "mse", False),
    "a penalty": (lambda: with_layer(keras.layers.ActivityRegularization(l2=0.1)), "mse", False),
    "a layer": (lambda: with_layer(Centred()), "mse", True),
    "an operation": (lambda: with_layer(keras.layers.Softmax(axis=0)), "mse", True),
    "a maximum": (
        lambda: with_layer(keras.layers.Lambda(lambda x: x / keras.ops.max(x))),
        "mse",
        True,
    ),
    "a loss": (build, contrastive, True),
}
"""Model, loss, and whether copies count in an evaluation, too."""


@pytest.mark.parametrize("name", COUNTING)
def test_copies_that_would_count_are_refused(name, messages):
    make, loss, in_evaluation = COUNTING[name]
    with sc.engine(make(), loss, "sgd", batch_size=8) as it:
        it.train_step((X[:8], Y[:8]))
        for count in (7, 1):
            with pytest.raises(sc.SettingError) as caught:
                it.train_step((X[:count], Y[:count]))
            assert (caught.value.setting, caught.value.value) == ("batch", f"{count} of 8 examples")
            assert f"batch_size={count}" in caught.value.suggestion
        messages.check(str(caught.value))
        assert it.step == 1
        if in_evaluation:
            for data in ((X, Y), (tf.data.Dataset.from_tensor_slices((X, Y)).batch(8),)):
                with pytest.raises(sc.SettingError) as caught:
                    it.evaluate(*data)
                assert (caught.value.setting, caught.value.value) == ("x", "4 of 8 examples")
            messages.check(str(caught.value))
            it.evaluate(X[:16], Y[:16])
        else:
            it.evaluate(X, Y)


@pytest.mark.parametrize("name", COUNTING)
def test_fit_refuses_them_too(name):
    make, loss, in_evaluation = COUNTING[name]
    with pytest.raises(sc.SettingError) as caught:
        sc.fit(make(), X, Y, loss=loss, batch_size=8, verbose=0)
    assert (caught.value.setting, caught.value.suggestion) == ("batch_size", "batch_size=5")
    if in_evaluation:
        with pytest.raises(sc.SettingError) as caught:
            sc.fit(make(), X[:16], Y[:16], loss=loss, batch_size=8, validation_data=(X, Y))
        assert caught.value.setting == "validation_data"


ROWS: dict[str, Callable[[], Any]] = {
    "dropout": lambda: keras.layers.Dropout(0.5),
    "noise of TensorFlow": lambda: keras.layers.Lambda(lambda x: x + tf.random.normal(x.shape)),
    "layer normalization": keras.layers.LayerNormalization,
    "a penalty on weights": lambda: keras.layers.Dense(2, kernel_regularizer="l2"),
}


@pytest.mark.parametrize("name", ROWS)
def test_other_short_batches_are_exact(name):
    """A step of five examples is that of an engine with a batch size of five."""
    model = with_layer(ROWS[name]())
    found = []
    for size in (8, 5):
        with sc.engine(model, "mse", "sgd", batch_size=size, metrics=["mae"]) as it:
            logs = it.train_step((X[:5], Y[:5]))
            found.append([*logs.values(), *(each.sum() for each in it.weights())])
    if name not in ("dropout", "noise of TensorFlow"):  # which draw for another shape
        np.testing.assert_allclose(*found, rtol=1e-5)


def test_an_engine_refuses_several_processes():
    with pytest.raises(sc.SettingError) as caught:
        sc.engine(build(), "mse", parallel=sc.Parallel(strategy="multi_worker_mirrored", workers=2))
    assert caught.value.setting == "parallel.workers"


def deep() -> keras.Model:
    inputs = hidden = keras.Input((4,))
    for _ in range(4):
        hidden = keras.layers.Dense(8, "relu")(hidden)
    return keras.Model(inputs, [keras.layers.Dense(2)(hidden), keras.layers.Dense(1)(hidden)])


@pytest.mark.parametrize("model", [deep, deep()], ids=["function", "model"])
def test_a_plan(model):
    parallel = sc.Parallel(strategy="grid", stages=2, microbatches=4)
    found = sc.plan(model, parallel, "2xT4-16GB", batch_size=64)
    assert len(found.stages) == 2 and len(found.cuts) == 1
    assert found.seconds > 0 and found.memory_bytes > 0 and 0 < found.speedup < 2
    assert found.bubble == pytest.approx(1 / 5)
    assert "T4-16GB:0 → T4-16GB:1" in str(found) and "<pre>" in found._repr_html_()
    assert repr(found) == str(found)
    assert sc.plan(model, sc.Parallel()).seconds is None
    with pytest.raises(sc.UserError) as caught:
        sc.plan(model, parallel, "T4-16GB")
    assert (caught.value.setting, caught.value.suggestion) == ("devices", "devices=2xT4-16GB")
    with pytest.raises(sc.UserError) as caught:
        sc.plan(keras.Sequential([keras.layers.Dense(1)]), parallel)
    assert caught.value.setting == "input_shape"


def test_more_virtual_stages_than_the_model_has_parts():
    parallel = sc.Parallel(
        strategy="grid", stages=2, virtual_stages=4, microbatches=4, virtual_devices=2
    )
    with pytest.raises(sc.SettingError) as caught:
        sc.plan(build(), parallel, devices="2xT4-16GB")
    assert (caught.value.setting, caught.value.value) == ("parallel.virtual_stages", 4)


def test_virtual_devices_after_the_start_of_tensorflow():
    tf.zeros(1).numpy()
    with pytest.raises(sc.UserError) as caught:
        sc.virtual_devices(99)
    assert caught.value.suggestion == "stagecraft.virtual_devices(99)"
    with pytest.raises(sc.SettingError):
        sc.virtual_devices(0)
    with pytest.raises(sc.SettingError) as refused:
        sc.check_parity(build(), X, sc.Parallel(), Y, loss="mse")
    assert refused.value.setting == "parallel.strategy"
