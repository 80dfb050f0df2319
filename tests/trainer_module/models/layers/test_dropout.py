import logging
import math
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from stagecraft.trainer_module.models.layers import dropout, random_state
from stagecraft.trainer_module.models.layers.dropout import key_layers
from stagecraft.trainer_module.models.layers.random_state import random_scope

SHAPE = (7, 9)


def _model(*stack, shape=SHAPE, seed=5):
    model = keras.Sequential([keras.Input(shape), *stack], name="model")
    key_layers(model, seed)
    return model


def _run(model, inputs, step=3, positions=None, jit=False):
    positions = range(len(inputs)) if positions is None else positions

    @tf.function(jit_compile=jit)
    def run(inputs, step, positions):
        with random_scope(step, positions):
            return model(inputs, training=True)

    return run(
        tf.convert_to_tensor(inputs),
        tf.constant(step, tf.int64),
        tf.constant(list(positions), tf.int64),
    ).numpy()


def _ones(batch=8, shape=SHAPE):
    return np.ones((batch, *shape), np.float32)


def _agreement(first, second):
    """How often two masks of rate 0.5 agree, in standard deviations from one half."""
    return abs((first == second).mean() - 0.5) * 2 * first.size**0.5


LAYERS = {
    "dropout": lambda: layers.Dropout(0.3),
    "shared": lambda: layers.Dropout(0.3, noise_shape=(None, 1, 9)),
    "alpha": lambda: layers.AlphaDropout(0.3),
    "spatial": lambda: layers.SpatialDropout1D(0.3),
    "gaussian_dropout": lambda: layers.GaussianDropout(0.3),
    "gaussian_noise": lambda: layers.GaussianNoise(0.3),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_part_of_the_batch_draws_what_the_batch_draws(layer):
    model = _model(LAYERS[layer]())
    inputs = np.random.default_rng(0).normal(size=(8, *SHAPE)).astype(np.float32)
    whole = _run(model, inputs)
    assert not np.array_equal(whole, inputs)
    np.testing.assert_array_equal(_run(model, inputs[2:5], positions=range(2, 5)), whole[2:5])
    np.testing.assert_array_equal(_run(model, inputs[6:7], positions=[6]), whole[6:7])
    np.testing.assert_array_equal(_run(model, inputs), whole)


# XLA rounds once where AlphaDropout multiplies and adds.
@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "alpha"])
def test_xla_draws_the_same(layer):
    model = _model(LAYERS[layer]())
    inputs = np.random.default_rng(0).normal(size=(8, *SHAPE)).astype(np.float32)
    np.testing.assert_array_equal(_run(model, inputs, jit=True), _run(model, inputs))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("jit", [False, True])
def test_other_precisions_draw_the_same_mask(dtype, jit):
    expected = _run(_model(layers.Dropout(0.5, name="drop")), _ones())
    model = _model(layers.Dropout(0.5, name="drop", dtype=dtype))
    outputs = _run(model, tf.cast(_ones(), dtype), jit=jit)
    assert outputs.dtype == tf.as_dtype(dtype).as_numpy_dtype
    # Twice one is exact in all of them.
    np.testing.assert_array_equal(outputs.astype(np.float32), expected)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_as_many_are_dropped_as_the_rate_says_and_the_rest_scaled(rate):
    outputs = _run(_model(layers.Dropout(rate), shape=(2000,)), _ones(50, (2000,)))
    np.testing.assert_allclose(np.unique(outputs), [0, 1 / (1 - rate)], rtol=2**-23)
    # Binomial, 10 ** 5 draws; four deviations, and the rate's rounding to 2 ** -16.
    bound = 4 * (rate * (1 - rate) / 1e5) ** 0.5 + 2**-17
    assert (outputs == 0).mean() == pytest.approx(rate, abs=bound)


def test_rows_columns_steps_layers_and_seeds_are_independent():
    inputs = _ones(64, (64,))
    model = _model(layers.Dropout(0.5, name="a"), shape=(64,))
    mask = _run(model, inputs) == 0
    other_layer = _model(layers.Dropout(0.5, name="b"), shape=(64,))
    other_seed = _model(layers.Dropout(0.5, name="a"), shape=(64,), seed=6)
    others = {
        "step": _run(model, inputs, step=4) == 0,
        "layer": _run(other_layer, inputs) == 0,
        "seed": _run(other_seed, inputs) == 0,
        "row": np.roll(mask, 1, axis=0),
        "column": np.roll(mask, 1, axis=1),
        "the four of a word": np.roll(mask, 4, axis=1),
        "diagonal": np.roll(mask, (1, 1), axis=(0, 1)),
    }
    # Agreement of independent fair coins is binomial: passed by 4 deviations once in 16,000.
    assert {name: _agreement(mask, other) < 4 for name, other in others.items()} == dict.fromkeys(
        others, True
    )


def test_normal_draws_are_normal():
    noise = _run(_model(layers.GaussianNoise(0.5), shape=(2000,)), _ones(50, (2000,))) - 1
    # 10 ** 5 draws: the mean's deviation is 0.5 / 316, the variance's 0.25 * sqrt(2) / 316.
    assert noise.mean() == pytest.approx(0, abs=4 * 0.5 / 316)
    assert noise.var() == pytest.approx(0.25, abs=4 * 0.25 * 2**0.5 / 316)
    # Within one and two deviations: 0.6827 and 0.9545; binomial.
    for bound, share in ((0.5, 0.6827), (1.0, 0.9545)):
        deviation = (share * (1 - share) / 1e5) ** 0.5
        assert (abs(noise) < bound).mean() == pytest.approx(share, abs=4 * deviation)


def test_normal_draws_have_tails():
    size = 2**20
    draws = _run(_model(layers.GaussianNoise(1.0), shape=(size // 8,)), np.zeros((8, size // 8)))
    beyond = {bound: int((abs(draws) > bound).sum()) for bound in (3.0, 4.3)}
    for bound, found in beyond.items():
        expected = size * math.erfc(bound / 2**0.5)
        assert abs(found - expected) < 5 * expected**0.5
    assert len(np.unique(draws)) > size // 2


def test_a_small_rate_is_no_multiple_of_two_to_the_minus_sixteen():
    count, rate = 2**18, 2.0**-18
    outputs = _run(_model(layers.Dropout(rate), shape=(count,)), _ones(8, (count,)))
    dropped, expected = int((outputs == 0).sum()), 8 * count * rate
    assert 0 < dropped < expected + 5 * expected**0.5


def test_alpha_dropout_keeps_mean_and_variance():
    inputs = np.random.default_rng(0).normal(size=(8, 100_000)).astype(np.float32)
    outputs = _run(_model(layers.AlphaDropout(0.3), shape=(100_000,)), inputs)
    # A mean of n values of variance 1 is off by n ** -0.5; the variance by 1.5 times as much.
    assert abs(outputs.mean()) < 5 * outputs.size**-0.5
    assert abs(outputs.var() - 1) < 10 * outputs.size**-0.5


def test_layers_that_draw_by_themselves_draw_anew_in_each_part():
    model = _model(layers.LSTM(9, dropout=0.5, return_sequences=True))
    (seed,) = (v for v in model.non_trainable_variables if "seed" in v.path)
    before = seed.numpy()
    own = []
    for first in (0, 4, 0):
        seed.assign(before)
        own.append(_run(model, _ones(4), positions=range(first, first + 4)))
    assert (own[0] == own[2]).all()
    assert (own[0] != own[1]).any()


def test_noise_shapes():
    inputs = _ones(32, (4, 6))
    channels = _run(_model(layers.SpatialDropout1D(0.5), shape=(4, 6)), inputs)
    assert (channels == channels[:, :1]).all() and (channels != channels[:, :, :1]).any()
    assert (channels != channels[:1]).any()
    # The batch that the user had in mind is not that of a microbatch.
    for first in (None, 32, 128):
        layer = layers.Dropout(0.5, noise_shape=(first, 4, 1))
        rows = _run(_model(layer, shape=(4, 6)), inputs)
        assert (rows == rows[:, :, :1]).all() and (rows != rows[:1]).any()
    for shape in ((1, 4, 6), (4, 6)):
        model = _model(layers.Dropout(0.5, noise_shape=shape), shape=(4, 6))
        shared = _run(model, inputs)
        assert (shared == shared[:1]).all() and 0 < (shared == 0).sum() < shared.size
        np.testing.assert_array_equal(_run(model, inputs[3:5], positions=[3, 4]), shared[3:5])


@pytest.mark.parametrize("first", [True, False])
def test_pictures_lose_whole_channels(first):
    order = "channels_first" if first else "channels_last"
    model = _model(layers.SpatialDropout2D(0.5, data_format=order), shape=(4, 6, 8))
    outputs = _run(model, _ones(16, (4, 6, 8)))
    outputs = outputs if first else np.moveaxis(outputs, -1, 1)
    assert (outputs == outputs[:, :, :1, :1]).all() and (outputs != outputs[:, :1]).any()


def test_parts_of_an_example_that_stand_where_the_batch_stood():
    def windows():
        inputs = keras.Input((6, 4))
        hidden = layers.Reshape((6, 4))(inputs)
        hidden = keras.ops.reshape(hidden, (-1, 4))
        hidden = layers.Dropout(0.5, name="drop")(hidden)
        return keras.Model(inputs, keras.ops.reshape(hidden, (-1, 6, 4)))

    model = windows()
    key_layers(model, 5)
    whole = _run(model, _ones(8, (6, 4)))
    np.testing.assert_array_equal(_run(model, _ones(3, (6, 4)), positions=[4, 5, 6]), whole[4:7])


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 1), (1.0, 0)])
def test_nothing_or_all(rate, expected):
    assert (_run(_model(layers.Dropout(rate)), _ones()) == expected).all()


def test_gradients_pass_where_values_do():
    model = _model(layers.Dropout(0.5))
    inputs = tf.constant(_ones())
    with (
        tf.GradientTape() as tape,
        random_scope(tf.constant(1, tf.int64), tf.range(8, dtype=tf.int64)),
    ):
        tape.watch(inputs)
        outputs = model(inputs, training=True)
    np.testing.assert_array_equal(tape.gradient(outputs, inputs), outputs)


def test_without_a_block_or_training_it_is_kerass_own():
    inputs = _ones()
    keyed = _model(layers.Dropout(0.5, seed=1))
    own = keras.Sequential([keras.Input(SHAPE), layers.Dropout(0.5, seed=1)])
    for _ in range(2):
        np.testing.assert_array_equal(keyed(inputs, training=True), own(inputs, training=True))
    with random_scope(tf.constant(1, tf.int64), tf.range(8, dtype=tf.int64)):
        np.testing.assert_array_equal(keyed(inputs, training=False), inputs)
        np.testing.assert_array_equal(keyed(inputs), inputs)


def test_a_keyed_draw_leaves_kerass_seed_alone():
    model = _model(layers.Dropout(0.5))
    (seed,) = model.non_trainable_variables
    before = seed.numpy()
    _run(model, _ones())
    np.testing.assert_array_equal(seed.numpy(), before)


def test_a_block_is_its_threads_own():
    model = _model(layers.Dropout(0.5))
    seen = []
    with random_scope(tf.constant(1, tf.int64), tf.range(8, dtype=tf.int64)):
        thread = threading.Thread(target=lambda: seen.append(random_state.current()))
        thread.start()
        thread.join()
        inside = model(_ones(), training=True)
    assert seen == [None]
    np.testing.assert_array_equal(_run(model, _ones(), step=1), inside)


def test_layers_of_one_name_in_two_models_and_calls_of_one_layer_differ():
    def part(name):
        return keras.Sequential([keras.Input((500,)), layers.Dropout(0.5, name="drop")], name=name)

    inputs = keras.Input((500,))
    twice = layers.Dropout(0.5, name="twice")
    outputs = [part("a")(inputs), part("b")(inputs), twice(inputs), twice(inputs)]
    model = keras.Model(inputs, keras.ops.stack(outputs))
    key_layers(model, 5)
    masks = _run(model, _ones(8, (500,))) == 0
    pairs = [(0, 1), (0, 2), (1, 2), (2, 3)]
    assert [pair for pair in pairs if _agreement(masks[pair[0]], masks[pair[1]]) > 4] == []


def test_a_stage_draws_what_the_model_draws():
    model = _model(layers.Dropout(0.5), layers.Dense(9), layers.Dropout(0.5))
    names = [layer.name for layer in model.layers]
    hidden = model.get_layer(names[1]).output
    stages = [keras.Model(model.inputs, hidden), keras.Model(hidden, model.outputs[0])]
    np.testing.assert_array_equal(_run(stages[1], _run(stages[0], _ones())), _run(model, _ones()))


def test_the_dropout_inside_attention_is_found():
    inputs = keras.Input((4, 8))
    attention = layers.MultiHeadAttention(2, 4, dropout=0.5)
    model = keras.Model(inputs, attention(inputs, inputs))
    key_layers(model, 5)
    data = np.random.default_rng(0).normal(size=(6, 4, 8)).astype(np.float32)
    whole = _run(model, data)
    assert abs(_run(model, data, step=4) - whole).max() > 0.01
    # The matrix products of another batch size may sum in another order: sums of 8 terms.
    part = _run(model, data[3:], positions=[3, 4, 5])
    np.testing.assert_allclose(part, whole[3:], rtol=0, atol=64 * 2**-24 * abs(whole).max())


class _OwnDropout(layers.Dropout):
    def call(self, inputs, training=False):
        return super().call(inputs, training=training)


def test_layers_that_cannot_be_keyed_are_named(caplog):
    with caplog.at_level(logging.WARNING, logger=dropout.__name__):
        _model(layers.LSTM(3, return_sequences=True), layers.Dropout(0.5))
        assert caplog.messages == []
        nested = keras.Sequential([keras.Input(SHAPE), _OwnDropout(0.5, name="own")], name="inner")
        _model(layers.LSTM(9, dropout=0.1, return_sequences=True, name="lstm"), nested)
    (message,) = caplog.messages
    assert "inner/own (_OwnDropout)" in message and "lstm/lstm_cell (LSTMCell)" in message
    assert "differ between topologies" in message
