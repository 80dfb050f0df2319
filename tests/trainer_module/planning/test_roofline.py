"""Seconds of operations against numbers computed by hand."""

import dataclasses
from typing import Any

import keras
import pytest
from keras import layers

from stagecraft.trainer_module.models import costs, model_graph
from stagecraft.trainer_module.models.costs import Operation, StageCost
from stagecraft.trainer_module.planning import device_times
from stagecraft.trainer_module.planning.accelerators import ACCELERATORS, Accelerator

DEVICE = Accelerator(
    name="device",
    memory_gb=1,
    memory_gb_per_second=1e-7,  # 100 bytes a second
    link_gb_per_second=1,
    float32_tflops=1e-9,  # 1,000 operations a second
    float64_tflops=1e-10,
    float16_tflops=1e-8,
    bfloat16_tflops=1e-8,
    efficiency=0.5,
    memory_efficiency=0.5,
    operation_seconds=0.25,
)


def seconds(operation: Operation, examples: float = 1.0, precision: str = "float32") -> float:
    return device_times.operation_seconds(operation, DEVICE, precision, examples)


def test_the_longer_of_computation_and_memory_counts():
    assert seconds(Operation(1_000, 50)) == 2 + 0.25
    assert seconds(Operation(100, 200)) == 4 + 0.25
    assert seconds(Operation(0, 100, 100)) == 4 + 0.25


def test_examples_share_the_weights():
    assert seconds(Operation(0, 100, 100), examples=3) == 8 + 0.25
    assert seconds(Operation(1_000, 0, 10), examples=3) == pytest.approx(6 + 0.25)


def test_precision_sets_the_peak_rate():
    assert seconds(Operation(1_000, 0), precision="mixed_bfloat16") == pytest.approx(0.2 + 0.25)
    assert seconds(Operation(1_000, 0), precision="float64") == pytest.approx(20 + 0.25)


def test_nothing_takes_no_time():
    assert seconds(Operation(0, 0)) == 0


def test_small_operations_reach_a_smaller_share_of_the_peak_rate():
    def share(flops: float) -> float:
        return flops / (seconds(Operation(flops, 0)) * 1_000)

    half = 0.5 * 1_000 * 0.25  # the operations in the fixed time, at the largest share
    assert share(half) == pytest.approx(0.25)
    shares = [share(10.0**power) for power in range(8)]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(0.5, rel=1e-4)


def test_winograd_where_there_are_no_matrix_units():
    small = Operation(2_250, 0, winograd=True)
    assert seconds(small) == pytest.approx(2 + 0.25)
    assert seconds(small, precision="float64") == pytest.approx(45 + 0.25)
    matrix = dataclasses.replace(DEVICE, tf32=True)
    assert device_times.operation_seconds(small, matrix, "float32", 1) == pytest.approx(4.5 + 0.25)


def cost(**given: Any) -> StageCost:
    values: dict[str, Any] = {
        "first": "first",
        "last": "last",
        "layers": 1,
        "parameters": 100,
        "trainable": 80,
        "frozen": 0,
        "flops": 1_000,
        "input_bytes": 0,
        "activation_bytes": 100,
        "output_bytes": 10,
        "output_tensors": 1,
        "tied": (),
        "kind": "kind",
    }
    return StageCost(**values | given)


def test_times_of_one_example_in_a_microbatch():
    known = cost(operations=(Operation(1_000, 50), Operation(0, 100, 100)))
    times = device_times.times(known, DEVICE, "float32", 2.0, 4)
    forward = (8 + 0.25 + 10 + 0.25) / 4
    assert times == pytest.approx((forward, 2 * forward))


def test_without_operations_a_stage_computes_and_copies():
    times = device_times.times(cost(), DEVICE, "float32", 2.0)
    assert times.forward == pytest.approx(2 + 0.25 + 4 + 0.25)


def test_more_examples_take_less_time_each():
    known = cost(operations=(Operation(10, 5, 1_000),))
    each = [device_times.times(known, DEVICE, "float32", 2.0, 2**n).forward for n in range(8)]
    assert each == sorted(each, reverse=True)


def test_shards_divide_marked_operations():
    whole = cost(
        operations=(Operation(800, 40, 20, split=True), Operation(200, 60, 4)),
        split_parameters=60,
        split_trainable=40,
        split_flops=800,
        split_activation_bytes=40,
    )
    part = device_times.divide(whole, 4)
    assert part.operations == (Operation(200, 10, 5, split=True), Operation(200, 60, 4))
    assert (part.parameters, part.trainable, part.flops, part.activation_bytes) == (
        *(100 - 45, 80 - 30),
        *(1_000 - 600, 100 - 30),
    )
    assert device_times.divide(whole, 1) is whole


def test_shards_divide_operations_without_marks_by_the_shares_of_all():
    whole = cost(
        operations=(Operation(1_000, 200, 40), Operation(0, 60)),
        split_flops=800,
        split_activation_bytes=50,
        split_parameters=100,
    )
    part = device_times.divide(whole, 2)
    assert part.operations == (Operation(600, 150, 20), Operation(0, 45))
    assert part.flops == 600
    undivided = device_times.divide(cost(operations=whole.operations), 2)
    assert undivided.operations == whole.operations


def test_layers_stay_whole_if_shards_are_too_many_for_them():
    whole = cost(operations=(Operation(1_000, 200),), split_flops=800, most_shards=3)
    assert device_times.divide(whole, 4) is whole
    assert device_times.divide(whole, 3).flops < whole.flops


def test_operations_of_a_model():
    given = keras.Input((8, 8, 2))
    hidden = layers.Conv2D(4, 3, padding="same", use_bias=False)(given)
    hidden = layers.Conv2D(4, 3, strides=2, padding="same", use_bias=False)(hidden)
    hidden = layers.Flatten()(layers.ReLU()(hidden))
    model = keras.Model(given, layers.Dense(10)(hidden))
    (found,) = costs.stage_costs([model], model_graph.of(model))
    small, large, relu, product, bias = found.operations
    pixels = 4 * 8 * 8
    assert small == Operation(2 * 9 * 2 * 64 * 4, pixels * (2 + 4), 4 * 9 * 2 * 4, winograd=True)
    assert large == Operation(2 * 9 * 4 * 16 * 4, pixels * 4 + 4 * 64, 4 * 9 * 4 * 4)
    assert relu == Operation(64, 4 * 2 * 64)
    assert product == Operation(2 * 64 * 10, 4 * (64 + 10), 4 * 64 * 10)
    assert bias == Operation(10, 4 * 20, 4 * 10)
    assert sum(each.flops for each in found.operations) == found.flops


def test_operations_of_weights_count_once_for_a_batch():
    given = keras.Input((8, 8, 2))
    model = keras.Model(given, layers.BatchNormalization()(given))
    (found,) = costs.stage_costs([model], model_graph.of(model))
    of_values = [each for each in found.operations if each.moved_bytes]
    assert {each.moved_bytes for each in of_values} == {4 * 2 * 128}, "each reads and writes all"
    assert all(each.weight_bytes <= 4 * 2 * 2 for each in found.operations)


def test_operations_on_whole_numbers_take_no_time():
    given = keras.Input((6,), dtype="int32")
    model = keras.Model(given, layers.Embedding(1_000, 4)(given))
    (found,) = costs.stage_costs([model], model_graph.of(model))
    (gather,) = found.operations
    assert gather == Operation(0, 2 * 4 * 6 * 4), "rows that are read, not the whole table"


@pytest.mark.parametrize("accelerator", ACCELERATORS.values(), ids=list(ACCELERATORS))
def test_shares_of_peak_rates_are_shares(accelerator):
    assert 0 < accelerator.efficiency <= 1 and 0 < accelerator.memory_efficiency <= 1
    assert accelerator.uses_winograd("float32") == (accelerator.name[0] in "PVT")
    assert not accelerator.uses_winograd("mixed_float16")
