"""``parallelize``: Keras's own ``fit`` on topologies, held against Keras on one device."""

from __future__ import annotations

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

ROWS = 13
IMAGES = np.random.default_rng(0).normal(size=(ROWS, 6, 6, 2))
TOKENS = np.random.default_rng(1).integers(1, 20, (ROWS, 6))
TOKENS[:, 4:] = 0
LABELS = np.random.default_rng(2).integers(0, 3, ROWS)

MIRRORED = sc.Parallel(strategy="mirrored", replicas=2)
GRID = sc.Parallel(strategy="grid", stages=2, microbatches=2)
BOTH = sc.Parallel(strategy="grid", replicas=2, stages=2, microbatches=2)


def cross_entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def pictures():
    given = keras.Input((6, 6, 2))
    hidden = layers.Conv2D(4, 3, kernel_regularizer="l2")(given)
    hidden = layers.SpatialDropout2D(0.3, seed=3)(hidden)
    hidden = layers.Dense(5, activation="relu", activity_regularizer="l2")(hidden)
    hidden = layers.Dropout(0.3, seed=4)(layers.Flatten()(hidden))
    return keras.Model(given, layers.Dense(3)(hidden))


def masked():
    given = keras.Input((6,), dtype="int64")
    hidden = layers.Embedding(20, 8, mask_zero=True)(given)
    attention = layers.MultiHeadAttention(2, 4, dropout=0.2, seed=5)(hidden, hidden)
    return keras.Model(given, layers.Dense(20)(layers.LayerNormalization()(hidden + attention)))


class Autoencoder(keras.Model):
    """Draws random numbers, and adds a mean."""

    def __init__(self):
        super().__init__()
        self.flat, self.encoder = layers.Flatten(), layers.Dense(6)
        self.decoder, self.seed = layers.Dense(72), keras.random.SeedGenerator(6)
        self.shaped = layers.Reshape((6, 6, 2))

    def call(self, inputs, training=None):
        mean, spread = ops.split(self.encoder(self.flat(inputs)), 2, axis=1)
        self.add_loss(ops.mean(ops.sum(ops.square(mean) + ops.exp(spread) - spread, axis=1)))
        noise = keras.random.normal(ops.shape(mean), dtype="float64", seed=self.seed)
        return self.shaped(self.decoder(mean + ops.exp(spread / 2) * noise))


class OwnStep(keras.Model):
    """Its loss is a function of the whole batch."""

    def __init__(self):
        super().__init__()
        self.flat, self.dense = layers.Flatten(), layers.Dense(3)

    def call(self, inputs):
        return self.dense(self.flat(inputs))

    def train_step(self, data):
        inputs, _ = data
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            loss = ops.mean(ops.logsumexp(outputs @ ops.transpose(outputs), axis=1))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def two_outputs():
    given = keras.Input((6, 6, 2))
    flat, shared = layers.Flatten()(given), layers.Dense(4)
    return keras.Model(
        given,
        {
            "b": layers.Dense(3, name="b")(shared(flat)),
            "a": layers.Dense(1, name="a")(shared(flat)),
        },
    )


def in_batch(targets, outputs):
    """Looks at all rows."""
    return ops.logsumexp(outputs @ ops.transpose(outputs), axis=1)


def one_number(targets, outputs):
    return ops.mean(ops.square(outputs - ops.cast(targets[:, None], outputs.dtype)))


CASES = {
    "pictures": (
        pictures,
        IMAGES,
        LABELS,
        lambda: {
            "loss": cross_entropy(),
            "optimizer": keras.optimizers.Adam(0.01, global_clipnorm=0.1, use_ema=True),
            "metrics": ["accuracy"],
        },
    ),
    "masked": (
        masked,
        TOKENS,
        TOKENS,
        lambda: {
            "loss": cross_entropy(),
            "optimizer": "rmsprop",
            "weighted_metrics": ["accuracy"],
        },
    ),
    "autoencoder": (
        Autoencoder,
        IMAGES,
        IMAGES,
        lambda: {"loss": "mse", "optimizer": keras.optimizers.AdamW(gradient_accumulation_steps=2)},
    ),
    "own step": (OwnStep, IMAGES, LABELS, lambda: {"optimizer": "sgd"}),
    "two outputs": (
        two_outputs,
        IMAGES,
        {"a": LABELS[:, None] * 1.0, "b": LABELS},
        lambda: {
            "loss": {"a": "mse", "b": cross_entropy()},
            "loss_weights": {"a": 0.3, "b": 2.0},
            "metrics": {"a": "mae"},
        },
    ),
    "spectral": (
        lambda: keras.Sequential(
            [
                keras.Input((6, 6, 2)),
                layers.SpectralNormalization(layers.Conv2D(4, 3)),
                layers.Flatten(),
                layers.Dense(3),
            ]
        ),
        IMAGES,
        LABELS,
        lambda: {"loss": cross_entropy(), "optimizer": "adam"},
    ),
    "in batch": (pictures, IMAGES, LABELS, lambda: {"loss": in_batch, "optimizer": "sgd"}),
    "one number": (pictures, IMAGES, LABELS, lambda: {"loss": one_number, "optimizer": "sgd"}),
}


def trained(name, parallel, *, batch_size=5, epochs=2):
    """History, weights and predictions after some epochs, whose last batch is short."""
    make, inputs, targets, options = CASES[name]
    keras.utils.set_random_seed(0)
    model = make()
    model.compile(**options())
    if parallel is not None:
        assert sc.parallelize(model, parallel) is model
    history = model.fit(
        inputs, targets, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0
    )
    weights = [weight.numpy() for weight in model.weights]
    return history.history, weights, model.predict(inputs, batch_size=4, verbose=0)


def check(name, parallel, **options):
    expected, found = trained(name, None, **options), trained(name, parallel, **options)
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "one number",
        *(pytest.param(each, marks=pytest.mark.full) for each in ("pictures", "masked")),
    ],
)
def test_two_stages_and_replicas_compute_what_keras_computes(name):
    check(name, BOTH)


@pytest.mark.parametrize(
    "parallel",
    [
        pytest.param(MIRRORED, id="mirrored"),
        pytest.param(GRID, id="grid", marks=pytest.mark.full),
        pytest.param(sc.Parallel(accumulate=3), id="accumulate", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_a_topology_computes_what_keras_computes(name, parallel):
    check(name, parallel)


SHARDS = sc.Parallel(strategy="grid", shards=2)
EVERYTHING = sc.Parallel(
    strategy="grid", stages=2, shards=2, microbatches=2, virtual_stages=2, remat=True
)


@pytest.fixture
def divides_small_layers(monkeypatch):
    monkeypatch.setattr(model_shards, "LEAST_PARAMETERS", 1)


@pytest.mark.usefixtures("divides_small_layers")
@pytest.mark.parametrize(
    ("name", "parallel"),
    [
        ("pictures", EVERYTHING),
        ("masked", SHARDS),
        *(
            pytest.param(name, parallel, marks=pytest.mark.full)
            for name in CASES
            for parallel in (SHARDS, EVERYTHING)
        ),
    ],
)
def test_shards_compute_what_keras_computes(name, parallel):
    check(name, parallel)


@pytest.mark.usefixtures("divides_small_layers")
@pytest.mark.parametrize(
    ("parallel", "count"),
    [
        (sc.Parallel(strategy="grid", stages=2, shards=2), 4),
        (sc.Parallel(strategy="grid", replicas=2, zero=1), 2),
    ],
)
def test_devices_share_weights_and_the_state_of_the_optimizer(parallel, count):
    model = pictures()
    model.compile("adam", cross_entropy())
    sc.parallelize(model, parallel)
    model.fit(IMAGES, LABELS, verbose=0)
    devices = {}
    for variable in model.trainable_variables:
        name = variable.path.replace("/", "_")
        slots = [each for each in model.optimizer.variables if f"/{name}_" in each.path]
        assert {each.value.device for each in slots} == {variable.value.device}
        assert len(slots) == 2
        devices.setdefault(variable.value.device, []).append(variable)
    assert len(devices) == count


def test_shards_of_a_model_without_large_layers_are_refused():
    model = pictures()
    model.compile("sgd", cross_entropy())
    sc.parallelize(model, SHARDS)
    with pytest.raises(SettingError) as caught:
        model.fit(IMAGES, LABELS, verbose=0)
    assert caught.value.setting == "parallel.shards"


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_batch_may_be_smaller_than_the_number_of_parts(batch_size):
    check("pictures", BOTH, batch_size=batch_size, epochs=1)


def test_recomputed_activations_draw_the_same_numbers():
    check("pictures", BOTH.model_copy(update={"remat": True}), epochs=1)


def test_variables_are_on_the_devices_of_their_stages():
    model = pictures()
    model.compile("adam", cross_entropy())
    sc.parallelize(model, GRID)
    model.fit(IMAGES, LABELS, verbose=0)
    places = [weight.value.device[-5:] for weight in model.weights if "kernel" in weight.path]
    assert places[0] == "CPU:0" and places[-1] == "CPU:1"
    slots = {
        slot.path.rpartition("/")[2]: slot.value.device[-5:] for slot in model.optimizer.variables
    }
    assert slots[f"{model.layers[-1].name}_kernel_momentum"] == "CPU:1"


def test_one_device_is_keras_again():
    model = pictures()
    model.compile("sgd", cross_entropy())
    sc.parallelize(model, MIRRORED)
    assert "train_step" in vars(model)
    sc.parallelize(model)
    assert not {"train_step", "call", "make_train_function"} & vars(model).keys()
    model.fit(IMAGES, LABELS, verbose=0)


class Mixing(keras.Model):
    """Subtracts the mean over the rows."""

    def __init__(self):
        super().__init__()
        self.flat, self.dense = layers.Flatten(), layers.Dense(3)

    def call(self, inputs):
        hidden = self.dense(self.flat(inputs))
        return hidden - ops.mean(hidden, axis=0, keepdims=True)


class SquaredMean(Mixing):
    """Adds a penalty of the mean over the rows."""

    def call(self, inputs):
        hidden = self.dense(self.flat(inputs))
        self.add_loss(ops.sum(ops.square(ops.mean(hidden, axis=0))))
        return hidden


@pytest.mark.parametrize("make", [Mixing, SquaredMean])
def test_what_needs_all_rows_is_refused(make):
    model = make()
    model.compile("sgd", cross_entropy())
    sc.parallelize(model, MIRRORED)
    with pytest.raises(ModelRefusedError) as caught:
        model.fit(IMAGES, LABELS, batch_size=5, verbose=0)
    assert caught.value.part == model.name
    assert model.optimizer.iterations == 0


@pytest.mark.parametrize("method", ["predict", "evaluate"])
def test_what_needs_all_rows_is_refused_after_a_training_in_single_rows(method):
    model = Mixing()
    model.compile("sgd", cross_entropy())
    sc.parallelize(model, MIRRORED)
    model.fit(IMAGES[:2], LABELS[:2], batch_size=1, verbose=0)
    with pytest.raises(ModelRefusedError):
        getattr(model, method)(*(IMAGES, LABELS)[: 1 if method == "predict" else 2], verbose=0)


class Padded(keras.Model):
    """Pads the rows of a batch to the longest."""

    def __init__(self):
        super().__init__(name="padded")
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs.to_tensor()[..., None])


def _ragged(*lengths):
    return tf.ragged.constant([[1.0] * length for length in lengths])


@pytest.mark.parametrize("parallel", [MIRRORED, GRID])
def test_outputs_of_other_shapes_are_refused_also_late(parallel):
    model, targets = Padded(), np.ones((4, 1, 3))
    model.compile("sgd", "mse")
    sc.parallelize(model, parallel)
    for lengths in ([3, 2, 3, 1], [3, 1, 2, 3]):
        model.train_on_batch(_ragged(*lengths), targets)
    with pytest.raises(ModelRefusedError) as caught:
        model.train_on_batch(_ragged(3, 2, 1, 1), targets)
    assert caught.value.part == "padded"


class Centered(layers.Layer):
    """Subtracts the mean over the rows."""

    def call(self, inputs):
        return inputs - ops.mean(inputs, axis=0, keepdims=True)


class OfMean(layers.Layer):
    """Adds a penalty of the mean over the rows."""

    def call(self, inputs):
        self.add_loss(ops.sum(ops.square(ops.mean(inputs, axis=0))))
        return inputs


@pytest.mark.parametrize("kind", [Centered, OfMean])
def test_the_layer_that_needs_all_rows_is_named(kind):
    inner = keras.Sequential([layers.Dense(4), kind(name="culprit")], name="inner")
    model = keras.Sequential([keras.Input((6, 6, 2)), layers.Flatten(), inner, layers.Dense(3)])
    model.compile("sgd", cross_entropy())
    sc.parallelize(model, MIRRORED)
    with pytest.raises(ModelRefusedError) as caught:
        model.fit(IMAGES, LABELS, batch_size=5, verbose=0)
    assert caught.value.part == "inner/culprit"


def test_a_second_derivative_is_refused():
    class Twice(OwnStep):
        def train_step(self, data):
            inputs, _ = data
            with tf.GradientTape() as outer:
                with tf.GradientTape() as tape:
                    tape.watch(inputs)
                    outputs = self(inputs, training=True)
                loss = ops.mean(ops.square(tape.gradient(outputs, inputs)))
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(outer.gradient(loss, weights), weights, strict=True))
            return {"loss": loss}

    model = Twice()
    model.compile("sgd")
    sc.parallelize(model, MIRRORED)
    with pytest.raises(Exception, match="differentiated twice"):
        model.fit(IMAGES, LABELS, verbose=0)


def test_other_processes_have_the_logical_devices_of_this_one():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).standard_normal((8, 4))
    two = sc.Parallel(strategy="grid", stages=2)
    assert sc.check_parity(model, x, x[:, :1], parallel=two, batch_size=4, steps=2)
