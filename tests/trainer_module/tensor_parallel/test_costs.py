"""What a plan knows of shards: parameters, operations and bytes, by piece."""

import keras
import pytest

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models import costs, model_graph, structural_keys
from stagecraft.trainer_module.models.costs import StageCost
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.tensor_parallel import costs as of_pieces
from stagecraft.trainer_module.tensor_parallel.costs import with_shards
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards

layers = keras.layers


def found(model: keras.Model, count: int = 2) -> dict[str, StageCost]:
    """Costs by the first layer of each piece."""
    cuts = next(iter(partition.all_cuts(model, 1, [], 1)))
    pieces = partition.split(model, cuts)
    each = costs.stage_costs(pieces, model_graph.of(model))
    return {cost.first: cost for cost in with_shards(each, pieces, model, count)}


def test_a_pair_sends_its_input_and_its_output_once():
    model = keras.Sequential(
        [
            keras.Input((40,)),
            layers.Dense(400, activation="relu", name="up"),
            layers.Dropout(0.5, name="drop"),
            layers.Dense(30, name="down"),
            layers.LayerNormalization(name="norm"),
        ]
    )
    up, drop, down, norm = (found(model)[name] for name in ("up", "drop", "down", "norm"))
    assert up.shard_bytes == 40 * 4  # the input; nobody joins the output
    assert (drop.shard_bytes, down.shard_bytes, norm.shard_bytes) == (0, 30 * 4, 0)
    assert up.split_parameters == up.parameters == 41 * 400
    assert (down.split_parameters, down.parameters) == (400 * 30, 401 * 30)  # the bias is whole
    assert up.split_flops == up.flops
    assert 0 < down.split_flops < down.flops
    assert norm.split_flops == norm.split_parameters == 0
    kept = [each.split_activation_bytes for each in (up, drop, down, norm)]
    assert kept == [400 * 4, 400, 0, 0]  # dropout keeps a mask


def test_a_frozen_layer_and_a_layer_that_is_joined():
    model = keras.Sequential(
        [
            keras.Input((40,)),
            layers.Dense(60, name="dense", trainable=False),
            layers.LayerNormalization(name="norm"),
            layers.Dense(60, name="last"),
        ]
    )
    dense = found(model, 3)["dense"]
    assert (dense.split_trainable, dense.split_parameters) == (0, 41 * 60)
    assert dense.shard_bytes == 40 * 4 + 60 * 4 // 3  # each shard's piece comes back


def test_attention_copies_each_sequence_once():
    sequence = keras.Input((6, 32))
    outputs = layers.MultiHeadAttention(4, 8, name="attention")(sequence, sequence)
    cost = found(keras.Model(sequence, outputs))["attention"]
    assert cost.shard_bytes == 2 * 6 * 32 * 4
    assert cost.parameters - cost.split_parameters == 32  # the output's bias


def test_an_activation_of_what_was_sent_is_computed_by_each_shard():
    given = keras.Input((40,))
    plain = layers.Dense(60, name="plain")
    branches = [
        plain(given),
        layers.Dense(60, name="active")(layers.ReLU(name="relu")(given)),
        layers.Dense(60, name="normal")(layers.LayerNormalization(name="norm")(given)),
    ]
    whole, sent = keras.Model(given, layers.Concatenate(name="end")(branches)), 40 * 4
    (cost,) = costs.stage_costs([whole], given)
    (cost,) = with_shards([cost], [whole], whole, 2)
    # Inputs of two layers, and outputs of three.
    assert cost.shard_bytes == 2 * sent + 3 * 60 * 4 // 2
    assert cost.split_flops == 3 * (2 * 40 * 60 + 60), "no shard divides the activation"


def test_most_of_a_stage_must_be_divided():
    big = keras.Sequential(
        [keras.Input((4, 40)), layers.LSTM(60, name="lstm"), layers.Dense(30, name="dense")]
    )
    with pytest.raises(SettingError) as caught:
        ModelShards([big], 2)
    assert caught.value.setting == "parallel.shards"
    small = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    with pytest.raises(SettingError) as caught:
        ModelShards([small], 2)
    assert caught.value.value == 2
    large = keras.Sequential([keras.Input((40,)), layers.Dense(60, name="large")])
    assert ModelShards([large, small], 2).splits, "the small stage takes no more memory whole"


# --- repeated blocks ---


def sequential(hidden, number, activation):
    hidden = layers.Dense(80, activation="relu", name=f"up{number}")(hidden)
    return layers.LayerNormalization()(layers.Dense(32, name=f"down{number}")(hidden))


def attention(hidden, number, activation):
    normed = layers.LayerNormalization()(hidden)
    hidden = layers.Add()([hidden, layers.MultiHeadAttention(4, 8)(normed, normed)])
    normed = layers.LayerNormalization()(hidden)
    dense = activation(layers.Dense(128)(normed))
    return layers.Add()([hidden, layers.Dense(32, name=f"down{number}")(dense)])


def parallel(hidden, number, activation):
    """A tensor that was sent to the other devices crosses cuts."""
    normed = layers.LayerNormalization()(hidden)
    both = layers.MultiHeadAttention(4, 8)(normed, normed), layers.Dense(32)(normed)
    return layers.Add()([hidden, *both])


def divided(hidden, number, activation):
    """A divided tensor crosses all cuts."""
    return layers.ReLU()(layers.Dense(36 if number % 3 else 32, name=f"dense{number}")(hidden))


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.full), 3])
@pytest.mark.parametrize("block", [sequential, attention, parallel, divided])
@pytest.mark.parametrize("shared", [pytest.param(False, marks=pytest.mark.full), True])
def test_repeated_blocks_cost_what_a_trace_of_each_says(block, shared, count, monkeypatch):
    one = layers.ReLU()
    given = values = keras.Input((6, 32))
    for number in range(6):
        values = block(values, number, one if shared else layers.ReLU())
    model = keras.Model(given, values)
    pieces = partition.split(model, partition.all_cuts(model, 1)[-1])
    each = costs.stage_costs(pieces, given)
    traces, trace = [], of_pieces._Trace._piece
    monkeypatch.setattr(
        of_pieces._Trace, "_piece", lambda *given: traces.append(1) or trace(*given)
    )
    fast, few = with_shards(each, pieces, model, count), len(traces)
    monkeypatch.setattr(structural_keys, "model_key", lambda model: None)
    assert with_shards(each, pieces, model, count) == fast
    assert len(traces) - few == len(pieces)
    if block is sequential or (block is attention and not shared):
        assert few <= len(pieces) / 3 + 1
