"""Small models that nobody thought of: on each topology equal to Keras, or refused by name."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import stagecraft as sc
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
from stagecraft.trainer_module.tensor_parallel import model_shards

pytestmark = pytest.mark.usefixtures("in_float64")

TOPOLOGIES = (
    {"strategy": "mirrored", "replicas": 2},
    {"strategy": "grid", "stages": 2, "microbatches": 2},
    {"strategy": "grid", "replicas": 2, "stages": 2, "microbatches": 2},
    {"accumulate": 3},
    {"strategy": "central_storage", "replicas": 2},
    {"strategy": "grid", "stages": 3, "remat": True},
    {"strategy": "grid", "shards": 2, "stages": 2, "microbatches": 2},
    {"strategy": "grid", "replicas": 2, "zero": 1},
)


class Penalty(layers.Layer):
    """Adds a loss of what passes."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def call(self, x):
        rows = ops.sum(ops.square(x), axis=list(range(1, len(x.shape))))
        of_batch = ops.square(ops.mean(x))
        self.add_loss({"mean": ops.mean(rows), "sum": 1e-2 * ops.sum(rows), "mixed": of_batch}[
            self.kind
        ])  # fmt: skip
        return x


class Mixing(layers.Layer):
    """A row depends on the others."""

    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


class Counter(layers.Layer):
    """Counts rows, and averages them."""

    def build(self, shape):
        self.rows = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.mean = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x, training=None):
        if training:
            self.rows.assign_add(ops.cast(ops.shape(x)[0], "float64"))
            self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x))
        return x


def _vector(draw: np.random.Generator) -> Any:
    return draw.choice(
        [
            lambda: layers.Dense(int(draw.integers(2, 7)), "tanh"),
            lambda: layers.Dense(4, kernel_regularizer="l2", use_bias=False),
            lambda: layers.Dense(3, activity_regularizer=keras.regularizers.L1L2(0.1, 0.1)),
            lambda: layers.Dropout(0.4, seed=int(draw.integers(99))),
            lambda: layers.GaussianNoise(0.3, seed=int(draw.integers(99))),
            lambda: layers.LayerNormalization(),
            lambda: layers.UnitNormalization(),
            lambda: layers.PReLU(),
            lambda: Counter(),
        ]
    )()


def _image(draw: np.random.Generator) -> Any:
    return draw.choice(
        [
            lambda: layers.Conv2D(3, 3, padding="same", activation="relu"),
            lambda: layers.SeparableConv2D(4, 3, padding="same"),
            lambda: layers.DepthwiseConv2D(3, padding="same"),
            lambda: layers.SpatialDropout2D(0.3, seed=int(draw.integers(99))),
            lambda: layers.GroupNormalization(groups=1),
            lambda: layers.AveragePooling2D(2, padding="same"),
        ]
    )()


def _sequence(draw: np.random.Generator) -> Any:
    return draw.choice(
        [
            lambda: layers.LSTM(4, return_sequences=True, dropout=0.2, seed=3),
            lambda: layers.Bidirectional(layers.GRU(3, return_sequences=True)),
            lambda: layers.TimeDistributed(layers.Dense(5, "relu")),
            lambda: layers.Conv1D(4, 2, padding="causal"),
            lambda: layers.EinsumDense("abc,cd->abd", (None, 4), bias_axes="d"),
        ]
    )()


def _inputs(draw: np.random.Generator, rows: int) -> tuple[Any, Any, Any]:
    """A symbolic input, what follows it, and arrays."""
    kind = draw.choice(["vector", "image", "sequence", "tokens"])
    if kind == "vector":
        given = keras.Input((5,))
        return given, given, draw.normal(size=(rows, 5))
    if kind == "image":
        given = hidden = keras.Input((6, 6, 2))
        for _ in range(draw.integers(1, 3)):
            hidden = _image(draw)(hidden)
        return given, layers.Flatten()(hidden), draw.normal(size=(rows, 6, 6, 2))
    if kind == "sequence":
        given = hidden = keras.Input((6, 4))
        array = draw.normal(size=(rows, 6, 4))
    else:
        given = keras.Input((6,), dtype="int32")
        hidden = layers.Embedding(9, 4, mask_zero=bool(draw.integers(2)))(given)
        array = draw.integers(0, 9, (rows, 6))
    for _ in range(draw.integers(1, 3)):
        hidden = _sequence(draw)(hidden)
    return given, layers.GlobalAveragePooling1D()(hidden), array


def made(number: int) -> tuple[keras.Model, Any, dict[str, Any], bool]:
    """A model, its data, the arguments of ``compile``, and whether rows of a batch meet."""
    draw = np.random.default_rng(number)
    size = int(draw.choice([1, 7, 32]))
    rows = 2 * size + max(1, size // 2)  # the last batch is short
    given, hidden, x = _inputs(draw, rows)
    mixes = False
    for _ in range(draw.integers(1, 4)):
        hidden = _vector(draw)(hidden)
    if draw.random() < 0.3:
        kind = str(draw.choice(["mean", "sum", "mixed"]))
        hidden, mixes = Penalty(kind)(hidden), kind == "mixed"
    if draw.random() < 0.1:
        hidden, mixes = Mixing()(hidden), True
    heads = [layers.Dense(2, name=name)(hidden) for name in ("b", "a")]
    form = draw.choice(["tensor", "list", "dictionary"])
    targets = [draw.normal(size=(rows, 2)) for _ in heads]
    loss: Any = [_loss(draw) for _ in heads]
    if form == "tensor":
        outputs, y, loss = heads[0], targets[0], loss[0]
    elif form == "list":
        outputs, y = heads, targets
    else:
        outputs = dict(zip("ba", heads, strict=True))
        y, loss = dict(zip("ba", targets, strict=True)), dict(zip("ba", loss, strict=True))
    optimizer = draw.choice(["sgd", "adam", "rmsprop", "adagrad"])
    clip = {"clipnorm": 0.1} if draw.random() < 0.3 else {}
    made_optimizer = keras.optimizers.get(
        {"class_name": str(optimizer), "config": {"learning_rate": 0.01, **clip}}
    )
    compiled = {"optimizer": made_optimizer, "loss": loss}
    weighted = {}
    if form == "tensor" and draw.random() < 0.3:
        weighted = {"sample_weight": draw.random(rows)}
    model = keras.Model(given, outputs)
    return model, {"x": x, "y": y, "batch_size": size, **weighted}, compiled, mixes


def _loss(draw: np.random.Generator) -> Any:
    def one_number(targets, outputs):
        return ops.mean(ops.square(outputs - targets))

    def of_batch(targets, outputs):
        return ops.logsumexp(outputs @ ops.transpose(outputs), axis=1)

    losses = keras.losses
    return draw.choice(
        [
            losses.MeanSquaredError(),
            losses.Huber(),
            losses.MeanAbsoluteError(reduction="sum"),
            losses.CosineSimilarity(),
            one_number,
            of_batch,
        ]
    )


def trained(number: int, parallel: sc.Parallel | None) -> tuple[list[np.ndarray], bool]:
    """All numbers after two epochs."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(number)
    model, data, compiled, mixes = made(number)
    model.compile(**compiled, metrics=None)
    if parallel is not None:
        sc.parallelize(model, parallel)
    history = model.fit(**data, epochs=2, shuffle=False, verbose=0).history
    numbers = model.evaluate(
        **{name: value for name, value in data.items() if name != "sample_weight"}, verbose=0
    )
    predicted = tf.nest.flatten(model.predict(data["x"], verbose=0))
    weights = [*model.variables, *model.optimizer.variables]
    return [*map(np.asarray, (*history.values(), numbers, *predicted, *weights))], mixes


Numbers = tuple[list[np.ndarray], bool]


def check(number: int, settings: dict[str, Any], expected: Numbers | None = None) -> bool:
    """Whether the model is equal; else it is refused, and rows meet in it, or no layer is large."""
    wanted, mixes = expected or trained(number, None)
    parallel = sc.Parallel(**settings)
    try:
        found, _ = trained(number, parallel)
    except ModelRefusedError:
        assert mixes, f"model {number} is refused without a cause"
        return False
    except SettingError as error:
        if error.setting != "parallel.shards":
            raise
        return False
    for one, other in zip(wanted, found, strict=True):
        message = f"model {number} on {settings}"
        np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-9, err_msg=message)
    return True


@pytest.fixture(autouse=True)
def divides_small_layers(monkeypatch):
    monkeypatch.setattr(model_shards, "LEAST_PARAMETERS", 1)


@pytest.mark.parametrize("number", [0, 2, 5])  # the smallest
def test_a_model_is_equal_or_refused(number):
    check(number, TOPOLOGIES[number])


@pytest.mark.parametrize("number", [0, 5])
def test_shards_of_a_model_are_equal(number):
    assert check(number, TOPOLOGIES[6])


@pytest.mark.full
@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_two_hundred_models_are_equal_or_refused(first):
    equal = 0
    for number in range(first, first + 20):
        expected = trained(number, None)
        equal += sum(check(number, settings, expected) for settings in TOPOLOGIES)
    assert equal > 100
