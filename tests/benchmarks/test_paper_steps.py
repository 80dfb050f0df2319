"""The steps of ``planner_papers``: updates, batches, all-reduce, fused operations."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Any

import pytest

from stagecraft.trainer_module.planning import collective_costs, device_times

PLANNING = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "planning"


@pytest.fixture(scope="module", autouse=True)
def importable():
    sys.path.insert(0, str(PLANNING))
    yield
    sys.path.remove(str(PLANNING))


TWO_STAGES = [2, 27]
"""Layers of the two stages of a small network."""


def made(**given: Any) -> Any:
    from papers import published

    network = {"name": "resnet", "blocks": [1, 1], "size": 32}
    costs = published.NETWORKS["resnet"](blocks=[1, 1], size=32)
    values = {
        "row": "made",
        "published": 1,
        "unit": "examples/s",
        "network": network,
        "accelerator": "P40-24GB",
        "cuts": [len(costs)],
    }
    return published.Row(**values | given).step()


def test_a_step_of_one_device_is_the_sum_of_its_operations():
    step = made(batch=4, updates=False)
    device = step.accelerator
    operations = [each for cost in step.costs for each in cost.operations]
    forward = sum(device_times.operation_seconds(each, device, "float32", 4) for each in operations)
    assert step.seconds() == pytest.approx(3 * forward)
    again = made(batch=4, recompute="always", updates=False)
    assert again.seconds() == pytest.approx(4 * forward)


@pytest.mark.parametrize(("slots", "size"), [(0, 12), (1, 20), (2, 28)])
def test_a_step_ends_with_the_update_of_all_weights(slots, size):
    with_update, without = (
        made(batch=4, slots=slots, updates=updates).seconds() for updates in (True, False)
    )
    weights = sum(cost.trainable for cost in made(batch=4).costs)
    rate = 0.8 * 346e9  # of the P40's memory
    assert with_update - without == pytest.approx(size * weights / rate)


def test_the_device_with_the_most_weights_updates_last():
    step = made(batch=4, cuts=TWO_STAGES, stages=2)
    later = sum(cost.trainable for cost in step.costs[2:])
    without = made(batch=4, cuts=TWO_STAGES, stages=2, updates=False)
    found = step.seconds() - without.seconds()
    assert found == pytest.approx(20 * later / (0.8 * 346e9))


def test_the_batch_is_the_largest_that_fits_memory():
    from papers import steps

    step = made(batch=64, cuts=TWO_STAGES, stages=2, microbatches=4, recompute="always")
    needs = [steps.device_bytes(step, examples) for examples in (1, 4, 16)]
    assert needs == sorted(needs)

    def adjusted(size: float, **given: Any) -> float:
        device = dataclasses.replace(step.accelerator, memory_gb=size / 1e9)
        changed = dataclasses.replace(step, accelerator=device, **given)
        return steps.adjusted(changed).batch

    assert adjusted(needs[1]) == 4 * 4
    assert adjusted(needs[1] - 1) == 4 * 2
    assert adjusted(1e30) == 64, "no more than asked"
    assert adjusted(1e30, batch=63) == 4 * 8, "a power of two"
    assert adjusted(1.0) == 4, "an example for each microbatch in any case"


def test_the_memory_of_a_device_is_that_of_gpipes_formula():
    from papers import steps

    step = made(batch=64, cuts=TWO_STAGES, stages=2, microbatches=4, recompute="always", slots=2)
    weights, activations = (
        [sum(getattr(cost, name) for cost in part) for part in (step.costs[:2], step.costs[2:])]
        for name in ("parameters", "activation_bytes")
    )
    inputs = [step.costs[0].input_bytes, step.costs[2].input_bytes]
    expected = [
        12 * each + 3 * (4 * given + held)
        for each, given, held in zip(weights, inputs, activations, strict=True)
    ]
    assert steps.device_bytes(step, 3) == max(expected)


def test_normalized_figures_compare_examples_a_second():
    from papers import published

    (table,) = (each for each in published.tables() if each.table == "Table 2, Transformer-48")
    batches = [row.step().batch for row in table.rows]
    assert len(set(batches)) > 1
    rates = [batch / row.step().seconds() for batch, row in zip(batches, table.rows, strict=True)]
    assert table.predictions() == pytest.approx([rate / rates[0] for rate in rates])


def test_xla_moves_less_memory_and_the_tables_do_not_count_it():
    from papers import layers, published

    given = layers.Image(12, 12, 8)
    relu, norm, total = layers.elementwise(given), layers.norm(given), layers.add(given)
    size = 4 * given.size
    moved = {
        fuses: [op.cost(4, fuses).moved_bytes / size for op in (relu, norm, total)]
        for fuses in (layers.NOTHING, layers.KERNELS, layers.ALL)
    }
    assert moved == {"nothing": [2, 3, 3], "kernels": [0, 3, 1], "all": [0, 0, 1]}
    convolution = layers.conv(given, 16)
    assert convolution.cost(4, layers.ALL) == convolution.cost(4)
    rows = [row for table in published.tables() for row in table.rows]
    assert {row.fuses for row in rows} == {False}
    (row,) = (row for row in rows if row.row == "1 GPU, TF32")
    fused = dataclasses.replace(row, fuses=True)
    assert fused.step().seconds() < row.step().seconds()
    eager = dataclasses.replace(fused, xla=False)
    assert eager.step().seconds() == row.step().seconds()


def test_other_mechanisms_change_all_rows_alike():
    from papers import calibration, published

    tables = published.tables()
    for fields in calibration.MECHANISMS.values():
        changed = calibration.with_fields(tables, fields)
        for before, after in zip(tables, changed, strict=True):
            for old, new in zip(before.rows, after.rows, strict=True):
                assert new.adjusts == (old.adjusts and fields.get("adjusts", True))
                assert all(getattr(new, k) == v for k, v in fields.items() if k != "adjusts")


def test_replicas_pay_for_what_does_not_overlap():
    alone, apart, hidden = (
        made(batch=4 * devices, devices=devices, overlap=overlap).seconds()
        for devices, overlap in ((1, False), (8, False), (8, True))
    )
    assert alone <= hidden < apart
    weights = sum(cost.parameters for cost in made(batch=4).costs)
    links = collective_costs.links(16, None).inside
    expected = collective_costs.all_reduce_seconds(4 * weights, 8, links)
    assert apart - alone == pytest.approx(expected)


def test_hosts_are_slower_than_devices_of_one_host():
    one, two, slow = (
        made(batch=32, devices=8, host_devices=devices, network_gbit=network).seconds()
        for devices, network in ((8, 100.0), (4, 100.0), (4, 10.0))
    )
    assert one < two < slow
