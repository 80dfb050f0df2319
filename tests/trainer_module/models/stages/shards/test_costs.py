"""What a plan knows of shards: parameters, operations and bytes, by piece."""

import keras
import pytest

from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.models.stages import costs, inputs, partition
from stagecraft.trainer_module.models.stages.costs import StageCost
from stagecraft.trainer_module.models.stages.shards.costs import with_shards
from stagecraft.trainer_module.models.stages.shards.model_shards import ModelShards

layers = keras.layers


def found(model: keras.Model, count: int = 2) -> dict[str, StageCost]:
    """Costs by the first layer of each piece."""
    cuts = next(iter(partition.all_cuts(model, 1, [], 1)))
    pieces = partition.split(model, cuts)
    each = costs.stage_costs(pieces, inputs.of(model))
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
    assert kept == [400 * 4, 400 * 4, 0, 0]


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


def test_most_of_a_stage_must_be_divided(messages):
    big = keras.Sequential(
        [keras.Input((4, 40)), layers.LSTM(60, name="lstm"), layers.Dense(30, name="dense")]
    )
    with messages.raises(SettingError) as caught:
        ModelShards([big], 2)
    assert caught.value.setting == "parallel.shards"
    small = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    with pytest.raises(SettingError) as caught:
        ModelShards([small], 2)
    assert caught.value.value == 2
