"""Parts of a batch share traces: where they must not, and what a trace must not change."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import stagecraft as sc
from stagecraft.parallel_model.placement import Placement
from stagecraft.trainer_module.settings import ParallelSettings

MICROBATCHES = sc.Parallel(strategy="grid", microbatches=2, virtual_devices=6)
STAGES = sc.Parallel(strategy="grid", stages=2, microbatches=2, virtual_devices=6)

X = np.random.default_rng(0).normal(size=(8, 3))


@pytest.fixture(autouse=True)
def _float64(in_float64: None) -> None:
    """Differences are those of the order of sums."""


def both(make: Callable[[], Any], parallel: sc.Parallel) -> tuple[Any, Any]:
    """Two models with equal weights, of which the second is on a topology."""
    keras.utils.set_random_seed(1)
    one = make()
    keras.utils.set_random_seed(1)
    return one, sc.parallelize(make(), parallel)


def assert_equal(one: Any, other: Any) -> None:
    for left, right in zip(one.variables, other.variables, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-9, atol=1e-12, err_msg=left.path)


class Scaled(keras.Model):
    """Its layer computes by an attribute, which changes between two calls."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = layers.Dense(3), self.Block()

    class Block(layers.Layer):
        scale = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.inner = layers.Dense(3)

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs) * self.scale

    def call(self, inputs: Any) -> Any:
        inputs, total = self.a(inputs), 0.0
        for power in range(3):
            self.b.scale = 10.0**power
            total = total + self.b(inputs)
        return total


class Remembered(Scaled):
    """A layer reads a tensor that another one has left in an attribute."""

    class Block(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layers.Dense(3)

        def call(self, inputs: Any) -> Any:
            self.gate = ops.stop_gradient(inputs * 10)
            return self.inner(inputs)

    def call(self, inputs: Any) -> Any:
        return self.b(self.a(inputs)) + self.b.gate


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("kind", [Scaled, Remembered])
def test_layers_that_compute_by_attributes(kind, jit):
    if jit and kind is Remembered:
        pytest.skip("a compiled layer's tensors stay in it")
    one, other = both(kind, STAGES.model_copy(update={"jit": jit}))
    np.testing.assert_allclose(other.predict_on_batch(X), one.predict_on_batch(X), rtol=1e-9)
    for model in (one, other):
        model.compile("adam", "mse", jit_compile=False)
        model.train_on_batch(X, X)
    assert_equal(one, other)


def two_heads(second: Callable[[Any], Any]) -> keras.Model:
    given = keras.Input((3,))
    hidden = layers.Dense(4, "relu")(given)
    return keras.Model(given, [layers.Dense(3)(hidden), second(hidden)])


@pytest.mark.parametrize("parallel", [MICROBATCHES, STAGES], ids=["microbatches", "stages"])
@pytest.mark.parametrize("second", [ops.log, lambda x: layers.Dense(2)(x)], ids=["log", "dense"])
def test_an_output_without_a_loss(second, parallel):
    """Its weights have no gradient, so that AdamW does not decay them; the log of 0 is no NaN."""
    one, other = both(lambda: two_heads(second), parallel)
    for model in (one, other):
        optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.5)
        model.compile(optimizer, ["mse", None], jit_compile=False)
        for _ in range(2):
            model.train_on_batch(X, [X, None])
    assert_equal(one, other)
    assert not any(np.isnan(each).any() for each in other.get_weights())


def test_a_sequential_that_changes():
    def make() -> keras.Model:
        return keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Dense(3)])

    one, other = both(make, STAGES)
    other.predict_on_batch(X)
    for model in (one, other):
        model.pop()
        model.add(layers.Dense(2, kernel_initializer="ones"))
        model.compile("adam", "mse", jit_compile=False)
    np.testing.assert_allclose(other.predict_on_batch(X), one.predict_on_batch(X), rtol=1e-9)


class OneHot(keras.Model):
    """Compares with other targets than those of the data."""

    def train_step(self, data: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        return super().train_step((x, ops.one_hot(y, 3)))


OUTSIDE: list[keras.Variable] = []


class TrainsMore(keras.Model):
    """Its optimizer has a variable that is not the model's."""

    def train_step(self, data: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(x, training=True) * OUTSIDE[-1] - y))
        variables = [*self.trainable_variables, OUTSIDE[-1]]
        gradients = tape.gradient(loss, [each.value for each in variables])
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"loss": loss}


def functional(kind: type[keras.Model]) -> keras.Model:
    given = keras.Input((3,))
    hidden = layers.Dense(4, "tanh")(given)
    return kind(given, layers.Dense(3)(hidden))


def test_metrics_of_other_targets():
    one, other = both(lambda: functional(OneHot), MICROBATCHES)
    logs = []
    for model in (one, other):
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
        logs.append(model.train_on_batch(X, np.arange(8) % 3, return_dict=True))
    assert {k: float(v) for k, v in logs[0].items()} == pytest.approx(
        {k: float(v) for k, v in logs[1].items()}
    )
    assert_equal(one, other)


def test_a_variable_that_is_not_the_models():
    def make() -> keras.Model:
        OUTSIDE.append(keras.Variable(2.0, dtype="float64"))
        return functional(TrainsMore)

    one, other = both(make, MICROBATCHES)
    found = []
    for model in (one, other):
        OUTSIDE.append(keras.Variable(2.0, dtype="float64"))
        model.compile("adam", jit_compile=False)
        model.train_on_batch(X, X)
        found.append(np.asarray(OUTSIDE[-1]))
    assert found[0] == pytest.approx(found[1]) and found[0] != 2
    assert_equal(one, other)


class OfRows(keras.Model):
    """Takes rows of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, rows: Any) -> Any:
        return self.dense(tf.reduce_sum(rows, axis=1)[:, tf.newaxis])


@pytest.mark.parametrize("twice", [False, True])
def test_a_generator_of_an_activation_goes_on(twice):
    def make() -> Any:
        generator = keras.random.SeedGenerator(3)

        def noisy(values: Any) -> Any:
            return values + keras.random.normal(ops.shape(values), seed=generator)

        given = keras.Input((3,))
        first = layers.Dense(3, activation=noisy)
        second = first if twice else layers.Dense(3, activation=noisy)
        return keras.Model(given, layers.Dense(1)(second(first(given))))

    one, other = both(make, STAGES)
    for model in (one, other):
        model.compile("sgd", "mse")
        model.fit(X, X[:, :1], epochs=2, batch_size=8, verbose=0)
    assert_equal(one, other)


class Nested(keras.Model):
    """Its steps call it in a function of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    @tf.function
    def outputs(self, inputs: Any) -> Any:
        return self(inputs, training=False)

    def predict_step(self, data: Any) -> Any:
        return self.outputs(data)


def test_a_prediction_in_a_function_of_the_models():
    one, other = both(Nested, STAGES)
    other(X)
    other.set_weights([np.ones((3, 2)), np.zeros(2)])
    one(X)
    one.set_weights(other.get_weights())
    for model in (one, other):
        model.compile("sgd", "mse")
    np.testing.assert_allclose(other.predict(X, verbose=0), one.predict(X, verbose=0))


def test_ragged_rows():
    rows = tf.ragged.constant([[1.0], [2.0, 3.0], [], [4.0]], dtype=tf.float64)
    one, other = both(OfRows, MICROBATCHES)
    np.testing.assert_allclose(other.predict_on_batch(rows), one.predict_on_batch(rows))


def test_a_layer_that_is_called_again():
    """Its calls are on both sides of a cut that its name does not mean."""

    def make() -> keras.Model:
        given = keras.Input((3,))
        again, *others = (layers.Dense(3, name=name) for name in "abcd")
        hidden = again(given)
        for layer in others[:2]:
            hidden = layer(hidden)
        return keras.Model(given, others[2](again(hidden)))

    parallel = {"strategy": "grid", "stages": 3, "microbatches": 2, "virtual_devices": 6}
    one, other = both(make, sc.Parallel(**parallel, cuts="a,b"))
    for model in (one, other):
        model.compile("adam", "mse", jit_compile=False)
        model.train_on_batch(X, X)
    assert_equal(one, other)


def test_a_functional_model_is_traced_once(monkeypatch):
    calls = []
    own = layers.Dense.call

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(self.name)
        return own(self, *args, **kwargs)

    parallel = {"strategy": "grid", "stages": 2, "virtual_devices": 6}
    counts = []
    for microbatches in (2, 8):
        one, other = both(
            lambda: functional(keras.Model), sc.Parallel(**parallel, microbatches=microbatches)
        )
        other.compile("adam", "mse", jit_compile=False)
        calls.clear()
        with monkeypatch.context() as patched:
            patched.setattr(layers.Dense, "call", call)
            other.train_on_batch(X, X)
        one.compile("adam", "mse", jit_compile=False)
        one.train_on_batch(X, X)
        assert_equal(one, other)
        counts.append(len(calls))
    assert counts[0] == counts[1] > 0


class Task(keras.Model):
    """A functional model with a model inside, whose first layer it uses again."""

    def __init__(self) -> None:
        given = keras.Input((3,))
        first = layers.Dense(3, use_bias=False)
        hidden = first(given)
        for _ in range(4):
            hidden = layers.Dense(3, "tanh")(hidden)
        self.inside = keras.Model({"x": given}, hidden)
        super().__init__(given, first(self.inside({"x": given})))


def test_a_stage_of_a_model_inside_is_one_call():
    model = Task()
    views = Placement(model, ParallelSettings(strategy="grid", stages=2)).views
    assert [inside for inside, _ in views] == [model.inside]
    assert [stage for _, stage in views[0][1]] == [0, 1]
    one, other = both(Task, STAGES)
    for each in (one, other):
        each.compile("adam", "mse", jit_compile=False)
        each.fit(X, X, batch_size=4, epochs=2, shuffle=False, verbose=0)
    assert_equal(one, other)
    np.testing.assert_allclose(other.predict(X, verbose=0), one.predict(X, verbose=0), rtol=1e-9)


class Counter(layers.Layer):
    """Assigns, and tells its shape itself, so that its outputs are traced before."""

    def build(self, _: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any) -> Any:
        self.calls.assign_add(1.0)
        return inputs

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class Score(layers.Layer):
    """Says that it has an output of ``[batch, 1]``, and has one of ``[batch]``."""

    def call(self, inputs: Any) -> Any:
        return ops.sum(inputs, -1)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape[0], 1


def ranked(scores: Any) -> Any:
    return tf.reshape(scores, (-1, 1)) if scores.shape.rank == 1 else scores * 0 + 7.0


def narrow(pixels: Any) -> Any:
    return pixels[:, :, None, None] * tf.ones((1, 1, 8, 1), pixels.dtype)


INSIDE: dict[str, tuple[Callable[[], list[Any]], tuple[int | None, ...]]] = {
    "penalty": (
        lambda: [layers.Dense(3, activity_regularizer="l2"), layers.Lambda(lambda x: 2 * x)],
        (3,),
    ),
    "assignment": (lambda: [layers.Dense(3), Counter()], (3,)),
    "rank": (
        lambda: [layers.Dense(3), Score(), layers.Lambda(ranked, output_shape=(1,))],
        (3,),
    ),
    "unknown sizes": (
        lambda: [layers.Lambda(lambda x: x / 2), layers.Conv2D(2, 3), layers.GlobalMaxPooling2D()],
        (None, None, 1),
    ),
}


@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("name", INSIDE)
def test_a_model_inside_is_looked_at_without_a_trace(name, microbatches):
    """Its cuts are sought in the middle of a call of the model around it."""
    first, shape = INSIDE[name]

    def make() -> keras.Model:
        inner = hidden = keras.Input(shape)
        for layer in first():
            hidden = layer(hidden)
        for _ in range(3):
            hidden = layers.Dense(3, "tanh")(hidden)
        given = keras.Input((3,))
        taken = given if len(shape) == 1 else layers.Lambda(narrow)(given)
        return keras.Model(given, layers.Dense(3)(keras.Model(inner, hidden)(taken)))

    parallel = sc.Parallel(strategy="grid", stages=2, microbatches=microbatches, virtual_devices=6)
    one, other = both(make, parallel)
    losses = []
    for each in (one, other):
        each.compile("adam", "mse", jit_compile=False)
        losses.append([float(each.train_on_batch(X, X)) for _ in range(2)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)
    assert_equal(one, other)


@pytest.mark.parametrize("settings", [{}, {"strategy": "mirrored", "replicas": 2}])
def test_compiled_layers_take_batches_of_any_size(settings):
    def make() -> keras.Model:
        given = keras.Input((3,))
        hidden = layers.LayerNormalization()(layers.Dense(4, "gelu")(given))
        model = keras.Model(given, layers.Dense(3)(hidden))
        model.compile("adam", "mse", jit_compile=False)
        return model

    one, other = both(make, sc.Parallel(jit=True, **settings))
    rows = np.random.default_rng(3).normal(size=(11, 3))
    for model in (one, other):
        model.fit(rows, rows, batch_size=4, epochs=2, shuffle=False, verbose=0)
    assert_equal(one, other)
