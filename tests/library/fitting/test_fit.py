"""``fit`` against ``keras.Model.fit``, on one device."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft import process_state

EPSILON = 2.0**-53


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    with process_state.restored():
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
        keras.utils.set_random_seed(7)
        yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


def classes() -> keras.losses.Loss:
    """Made in each test: a loss computes in the float type that Keras has when it is made."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape)


def labels(count: int) -> np.ndarray:
    return np.random.default_rng(9).integers(0, 3, count)


def mlp() -> keras.Model:
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((5,)), *layers])


def cnn() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    hidden = keras.layers.Conv2D(4, 3)(inputs)
    hidden = keras.layers.ReLU()(keras.layers.BatchNormalization()(hidden))
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(3)(hidden))


def two_inputs() -> keras.Model:
    left, right = keras.Input((5,)), keras.Input((2,))
    hidden = keras.layers.Concatenate()([keras.layers.Dense(4)(left), right])
    return keras.Model([left, right], keras.layers.Dense(3)(hidden))


def words() -> keras.Model:
    inputs = keras.Input((6,), dtype="int32")
    hidden = keras.layers.Embedding(10, 4)(inputs)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(3)(hidden))


def penalized() -> keras.Model:
    regularizer = keras.regularizers.L2(0.01)
    layers = [keras.layers.Dense(4, kernel_regularizer=regularizer), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((5,)), *layers])


class Own(keras.Model):
    """A model by inheritance, whose layers are built at the first call."""

    def __init__(self, width: int = 4, **more: Any):
        super().__init__(**more)
        self.width = width
        self.hidden, self.last = keras.layers.Dense(width), keras.layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return self.last(keras.ops.tanh(self.hidden(inputs)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "width": self.width}


class Simple(keras.Model):
    """A class without arguments needs no configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.last = keras.layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return self.last(inputs)


def unbuilt() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(4, "tanh"), keras.layers.Dense(3)])


TOKENS = np.random.default_rng(3).integers(0, 10, (50, 6))

MODELS: dict[str, tuple[Callable[[], keras.Model], Any, int]] = {
    "mlp": (mlp, draw(50, 5), 16),
    "cnn": (cnn, draw(48, 8, 8, 3), 16),
    "two inputs": (two_inputs, [draw(50, 5), draw(50, 2)], 16),
    "embedding": (words, TOKENS, 16),
    "regularizer": (penalized, draw(50, 5), 16),
    "class": (Own, draw(50, 5), 16),
    "simple class": (Simple, draw(50, 5), 16),
    "unbuilt": (unbuilt, draw(50, 5), 16),
}


def first(x: Any, rows: int) -> Any:
    return [part[:rows] for part in x] if isinstance(x, list) else x[:rows]


def count(x: Any) -> int:
    return len(x[0] if isinstance(x, list) else x)


def by_keras(model: keras.Model, optimizer: Any, x: Any, y: Any, loss: Any, **more: Any) -> Any:
    """Weights and history of Keras; the model has its old weights again."""
    model(first(x, 2))
    start = model.get_weights()
    twin = type(model)() if isinstance(model, Simple) else keras.models.clone_model(model)
    twin(first(x, 2))
    twin.set_weights(start)
    metrics = more.pop("metrics", None)
    twin.compile(optimizer, loss, metrics=metrics, jit_compile=False)
    history = twin.fit(x, y, shuffle=False, verbose=0, **more)
    return twin.get_weights(), history.history


def assert_near(found: list[np.ndarray], expected: list[np.ndarray], sums: int = 10_000) -> None:
    """Equal but for roundings of float64 sums of fewer terms than ``sums``, amplified by a step."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=sums * EPSILON, atol=sums * EPSILON)


FAST = ("cnn", "two inputs", "simple class")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in MODELS]
)
def test_it_trains_as_keras_does(name):
    build, x, size = MODELS[name]
    y = labels(count(x))
    model = build()
    more = {"batch_size": size, "epochs": 2, "validation_data": (first(x, 20), y[:20])}
    kind = keras.optimizers.Adam
    weights, history = by_keras(model, kind(0.01), x, y, classes(), metrics=["accuracy"], **more)
    found = sc.fit(
        model,
        x,
        y,
        loss=classes(),
        optimizer=kind(0.01),
        metrics=["accuracy"],
        shuffle=False,
        verbose=0,
        **more,
    )
    assert_near(model.get_weights(), weights)
    assert found.model is model and found.epoch == [0, 1]
    assert found.history.keys() == history.keys()
    for key, values in history.items():
        np.testing.assert_allclose(found.history[key], values, rtol=1e-12)


RATE = keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "schedule": lambda: keras.optimizers.SGD(RATE, momentum=0.9, nesterov=True),
    "weight decay": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "norm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1),
    "value": lambda: keras.optimizers.RMSprop(0.01, clipvalue=0.01),
    "name": lambda: "adagrad",
    "muon": lambda: sc.Muon(RATE, weight_decay=0.125, exclude=()),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_step_as_in_keras(name):
    model, x, y = mlp(), draw(48, 5), labels(48)
    weights, _ = by_keras(model, OPTIMIZERS[name](), x, y, classes(), batch_size=16)
    sc.fit(
        model,
        x,
        y,
        loss=classes(),
        optimizer=OPTIMIZERS[name](),
        batch_size=16,
        shuffle=False,
        verbose=0,
    )
    # Keras keeps learning rates and the factors of clipping in float32.
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=2**-22, atol=2**-22)


@pytest.mark.slow
def test_muon_leaves_the_head_to_sgd():
    """The optimizer learns from the model which layer is the last; a name is the same optimizer."""
    model, x, y = mlp(), draw(48, 5), labels(48)
    start = model.get_weights()
    head = f"{model.layers[-1].name}/"
    found = []
    for optimizer in ("muon", sc.Muon(), sc.Muon(exclude=head), sc.Muon(exclude=())):
        model.set_weights(start)
        given = {"loss": classes(), "batch_size": 16, "shuffle": False, "verbose": 0}
        sc.fit(model, x, y, optimizer=optimizer, **given)
        found.append(model.get_weights())
    by_name, by_default, by_path, with_head = found
    for one, other in ((by_name, by_default), (by_default, by_path)):
        for value, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(value, expected)
    assert not np.allclose(by_default[2], with_head[2], atol=1e-3)
    with pytest.raises(sc.SettingError) as caught:
        sc.fit(model, x, y, optimizer=sc.Muon(exclude="top/"), **given)
    assert caught.value.value == {"exclude": "top/"}


@pytest.mark.parametrize("shape", [(50,), (50, 1)])
def test_sample_weights_and_a_short_batch(shape):
    model, x, y, weights = mlp(), draw(50, 5), draw(50, 3), np.linspace(0, 2, 50).reshape(shape)
    expected, history = by_keras(
        model, "sgd", x, y, "mse", sample_weight=weights, batch_size=16, metrics=["mae"]
    )
    found = sc.fit(
        model,
        x,
        y,
        loss="mse",
        optimizer="sgd",
        metrics=["mae"],
        sample_weight=weights,
        batch_size=16,
        shuffle=False,
        verbose=0,
    )
    assert_near(model.get_weights(), expected)
    np.testing.assert_allclose(found.history["loss"], history["loss"], rtol=1e-7)
    np.testing.assert_allclose(found.history["mae"], history["mae"], rtol=1e-7)


def test_datasets():
    x, y = draw(50, 5), draw(50, 3)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    unknown = dataset.filter(lambda *_: True)
    model = mlp()
    expected, _ = by_keras(model, "sgd", x, y, "mse", batch_size=16)
    start = model.get_weights()
    unweighted = dataset.map(lambda x, y: (x, y, None))
    for each in (dataset, unknown, unweighted):
        model.set_weights(start)
        history = sc.fit(model, each, loss="mse", optimizer="sgd", verbose=0)
        assert_near(model.get_weights(), expected)
    endless = dataset.repeat()
    history = sc.fit(model, endless, loss="mse", steps_per_epoch=3, epochs=2, verbose=0)
    assert len(history.epoch) == 2


def test_several_steps_in_one_call():
    x, y = draw(23, 5), labels(23)

    def trained(**more):
        keras.utils.set_random_seed(1)
        model, options = mlp(), {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
        history = sc.fit(model, x, y, loss=classes(), optimizer="adam", **options, **more)
        return model.steps_per_execution, [*history.history["loss"], *model.get_weights()]

    seen = []
    looks = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(batch)
    )
    (one, expected), (auto, found) = trained(), trained(steps_per_execution="auto")
    assert (one, auto) == (1, 16)
    assert trained(steps_per_execution="auto", callbacks=[looks])[0] == 1
    assert len(seen) == 12
    for own, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, own, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_several_outputs(weighted):
    inputs = keras.Input((5,))
    outputs = {"a": keras.layers.Dense(3, name="a")(inputs), "b": keras.layers.Dense(1)(inputs)}
    model = keras.Model(inputs, outputs)
    x, y = draw(32, 5), {"a": labels(32), "b": draw(32, 1)}
    loss = {"a": classes(), "b": "mse"}
    metrics = {"a": ["accuracy"]}
    weights = {"a": np.linspace(0, 2, 32), "b": np.linspace(3, 1, 32)} if weighted else None
    more = {"sample_weight": weights, "batch_size": 16}
    expected, history = by_keras(model, "sgd", x, y, loss, metrics=metrics, **more)
    found = sc.fit(
        model,
        x,
        y,
        loss=loss,
        metrics=metrics,
        optimizer="sgd",
        shuffle=False,
        verbose=0,
        **more,
    )
    assert_near(model.get_weights(), expected)
    assert found.history["a_accuracy"] == pytest.approx(history["a_accuracy"])


@pytest.mark.slow
def test_a_function_that_builds_the_model():
    history = sc.fit(mlp, draw(32, 5), draw(32, 3), loss="mse", verbose=0, seed=3)
    again = sc.fit(mlp, draw(32, 5), draw(32, 3), loss="mse", verbose=0, seed=3)
    assert_near(history.model.get_weights(), again.model.get_weights(), 1)
    other = sc.fit(mlp, draw(32, 5), draw(32, 3), loss="mse", verbose=0, seed=4)
    assert abs(other.model.get_weights()[0] - again.model.get_weights()[0]).max() > 0.01


def test_the_process_is_as_before():
    layer = keras.layers.Dense(1)
    model = mlp()
    tf.random.set_seed(5)
    options = tf.config.optimizer.get_experimental_options()
    states = random.getstate(), np.random.get_state()[1].tolist()
    expected = tf.random.uniform([3]).numpy()
    tf.random.set_seed(5)
    sc.fit(model, draw(32, 5), draw(32, 3), loss="mse", verbose=0, seed=3)
    assert tf.random.uniform([3]).numpy().tolist() == expected.tolist()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states
    assert tf.config.optimizer.get_experimental_options() == options
    assert keras.config.dtype_policy().name == "float64"
    assert keras.layers.Dense(1).name not in {layer.name, *(each.name for each in model.layers)}
    model.compile("adam", "mse")
    model.fit(draw(32, 5), draw(32, 3), verbose=0)


def test_precision_of_a_function_and_of_a_model():
    x, y = draw(32, 8, 8, 3), labels(32)
    parallel = sc.Parallel(precision="mixed_bfloat16")
    made = sc.fit(cnn, x, y, loss=classes(), parallel=parallel, verbose=0).model
    assert {weight.dtype for weight in made.weights} == {"float32"}
    assert made.layers[1].compute_dtype == "bfloat16"
    assert keras.config.dtype_policy().name == "float64"
    own = sc.fit(cnn, x, y, loss=classes(), parallel=sc.Parallel(), verbose=0).model
    assert {weight.dtype for weight in own.weights} == {"float64"}  # the global policy counts
    with pytest.raises(sc.SettingError) as caught:
        sc.fit(cnn(), x, y, loss=classes(), parallel=parallel, verbose=0)
    assert caught.value.setting == "parallel.precision"


def test_a_compiled_model_keeps_what_it_is_compiled_with():
    model, x, y = mlp(), draw(32, 5), draw(32, 3)
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(optimizer, "mae", metrics=["mse"])
    found = [sc.fit(model, x, y, verbose=0).history.keys() for _ in range(2)]
    assert found == [{"loss", "mse"}] * 2 and model.optimizer is optimizer
    assert int(optimizer.iterations) == 2  # one state, as in Keras
    assert sc.fit(model, x, y, loss="mae", metrics=["mape"], verbose=0).history.keys() == {
        "loss",
        "mape",
    }
    assert int(optimizer.iterations) == 3
    with pytest.raises(sc.SettingError) as caught:
        sc.fit(mlp(), x, y)
    assert caught.value.setting == "loss"


@pytest.mark.parametrize("given", [3, "mlp", keras.Model, lambda: 3])
def test_what_is_no_model_is_refused(given):
    with pytest.raises(sc.SettingError) as caught:
        sc.fit(given, draw(32, 5), draw(32, 3), loss="mse", parallel=sc.Parallel())
    assert caught.value.setting == "model"
