"""Which models count as computing the same: never too many, and repeated blocks do."""

import functools

import keras
import pytest
from keras import layers
from networks_built import built

from stagecraft.trainer_module.models import costs, model_graph, structural_keys
from stagecraft.trainer_module.pipeline_parallel import partition


def chain(*stack, width=6):
    values = given = keras.Input((4, width))
    for layer in stack:
        values = layer(values)
    return keras.Model(given, values)


def keys(*stacks):
    return [structural_keys.model_key(chain(*stack)) for stack in stacks]


def pieces_of(model):
    return partition.split(model, partition.all_cuts(model, 1)[-1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: [layers.Dense(6, activation="gelu")],
        lambda: [layers.Dropout(0.5, seed=None), layers.LayerNormalization()],
        lambda: [layers.LSTM(3, return_sequences=True)],
        lambda: [layers.Bidirectional(layers.GRU(3)), layers.BatchNormalization()],
        lambda: [layers.TimeDistributed(layers.Dense(3))],
        lambda: [keras.Sequential([layers.Dense(3), layers.ReLU()]), layers.Flatten()],
        lambda: [lambda x: keras.ops.transpose(keras.ops.add(x, 2.0), (0, 2, 1))],
        lambda: [lambda x: layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)],
    ],
)
def test_equal_stacks_are_alike_whatever_their_names(make):
    one, other = keys(make(), make())
    assert one is not None and one == other and hash(one) == hash(other)


def dense(**changes):
    layer = layers.Dense(6)
    for name, value in changes.items():
        setattr(layer, name, value)
    return layer


@pytest.mark.parametrize(
    "other",
    [
        dense(activation=keras.activations.gelu),
        dense(trainable=False),
        layers.Dense(6, use_bias=False),
        layers.Dense(6, dtype="mixed_bfloat16"),
        layers.Dense(6, dtype="float64"),
        layers.Dense(7),
        layers.EinsumDense("abc,cd->abd", (4, 6), bias_axes="d"),
    ],
)
def test_a_change_after_construction_counts(other):
    one, changed = keys([dense()], [other])
    assert one is not None and changed is not None and one != changed


def test_the_graph_counts():
    given = keras.Input((4,))
    one, other = layers.Dense(4), layers.Dense(4)
    hidden = one(given)
    models = [
        keras.Model(given, other(one(given))),
        keras.Model(given, one(hidden)),
        keras.Model(given, keras.ops.subtract(hidden, given)),
        keras.Model(given, keras.ops.subtract(given, hidden)),
        keras.Model(given, [hidden, given * 1]),
        keras.Model(given, [given * 1, hidden]),
        keras.Model(given, {"a": hidden}),
    ]
    found = list(map(structural_keys.model_key, models))
    assert None not in found and len(set(found)) == len(found)


def test_low_rank_adapters_count():
    plain, adapted = chain(layers.Dense(64)), chain(adapter := layers.Dense(64))
    adapter.enable_lora(2)
    assert structural_keys.model_key(plain) != structural_keys.model_key(adapted)


# --- code of others ---

_calls = []


class Growing(layers.Layer):
    """Computes by a global counter, which its configuration does not show."""

    def call(self, inputs):
        _calls.append(self.name)
        return functools.reduce(keras.ops.add, [inputs] * (1 + len(_calls)))


class Quiet(layers.Dense):
    """Has the configuration and the attributes of a Dense."""


def relu(values):
    return keras.ops.softmax(values)


@functools.wraps(keras.activations.relu)
def wrapped(values):
    return keras.ops.softmax(values)


def _patched():
    layer = layers.Dense(6)
    layer.call = lambda inputs: inputs
    return layer


class Own(keras.Model):
    """A graph of Keras in a class that is not Keras's."""


@pytest.mark.parametrize(
    "layer",
    [
        Growing(),
        Quiet(6),
        layers.Dense(6, activation=relu),
        layers.Dense(6, activation=wrapped),
        layers.TimeDistributed(Quiet(6)),
        layers.RNN([layers.LSTMCell(3, recurrent_activation=relu)]),
        layers.Lambda(lambda x: x),
        keras.Sequential([Growing()]),
        _patched(),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_code_of_others_has_no_key(layer):
    assert keys([layer]) == [None]


def test_a_class_of_others_has_no_key():
    given = keras.Input((4,))
    assert structural_keys.model_key(Own(given, layers.Dense(3)(given))) is None


def test_layers_with_state_elsewhere_have_costs_of_their_own():
    values = given = keras.Input((4,))
    for _ in range(3):
        values = Growing()(values)
    model = keras.Model(given, values)
    _calls.clear()
    found = costs.stage_costs(pieces_of(model), given)
    assert len(_calls) == 6  # in inference, and in training
    assert [cost.flops for cost in found] == sorted({cost.flops for cost in found})


@pytest.mark.parametrize("name", ["resnet20", "wide_resnet_10_1", "unet_2"])
def test_each_kind_of_piece_is_traced_once(name, monkeypatch):
    model, traces, trace = built(name), [], costs._trace
    monkeypatch.setattr(
        costs, "_trace", lambda *given, **mode: traces.append(1) or trace(*given, **mode)
    )
    pieces, given = pieces_of(model), model_graph.of(model)
    fast = costs.stage_costs(pieces, given)
    assert len(traces) == 2 * len({cost.kind for cost in fast})  # in inference, and in training
    monkeypatch.setattr(structural_keys, "model_key", lambda model: None)
    assert costs.stage_costs(pieces, given) == fast
