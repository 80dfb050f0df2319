"""Seconds of the optimizer's update, and of shards whose costs are divided first."""

import dataclasses
import math

import pytest
from random_costs import pieces, work

from stagecraft.trainer_module.planning import device_times
from stagecraft.trainer_module.planning.accelerators import ACCELERATORS
from stagecraft.trainer_module.planning.cost_model import Degrees
from stagecraft.trainer_module.planning.device_times import PieceTimes
from stagecraft.trainer_module.planning.search import search

A100 = ACCELERATORS["A100-40GB"]


@pytest.mark.parametrize(("slots", "each"), [(0, 12), (1, 20), (2, 28)])
def test_bytes_of_a_weight(slots, each):
    assert device_times.moved_bytes(10, slots) == 10 * each


def test_widths_of_weights_and_gradients():
    assert device_times.moved_bytes(10, 1, width=8, gradient_width=8) == 400
    assert device_times.moved_bytes(10, 2, gradient_width=2) == 10 * 26


def test_the_bandwidth_is_the_share_that_operations_reach():
    assert device_times.bytes_per_second(A100) == pytest.approx(0.8 * 1_555e9)


def test_the_device_with_the_most_weights_sets_the_time():
    given = work(pieces(0), device=A100)
    degrees = given.degrees._replace(stages=2)
    for starts in ([1], [3]):
        most = max(
            sum(each.trainable for each in part)
            for part in (given.pieces[: starts[0]], given.pieces[starts[0] :])
        )
        found = given.exchange(degrees, starts).update
        assert found == pytest.approx(20 * most / (0.8 * 1_555e9))


def test_shards_lower_it_and_the_bound_holds():
    given = work(pieces(1), device=A100)
    every = [
        Degrees("grid", replicas=replicas, stages=2, shards=shards, zero=zero)
        for replicas, zero in ((1, 0), (4, 0), (4, 1))
        for shards in (1, 2, 4)
    ]
    found = {each: given.exchange(each, [2]) for each in every}
    by_shards = [found[each].update for each in every[:3]]
    assert by_shards == sorted(by_shards, reverse=True)
    assert found[every[6]].update == found[every[3]].update, "ZeRO cuts and joins besides"
    for each, exchange in found.items():
        assert 0 < search.even_exchange(given, each) <= exchange.all_reduce + exchange.update


def test_servers_update_the_weights_outside_of_a_step():
    given = work(pieces(0), device=A100)
    assert given.update(Degrees("parameter_server", workers=2), [1e9]) == 0


def test_unknown_rates_take_no_time():
    given = work(pieces(0))
    assert given.exchange(given.degrees, []).update == 0


def test_averages_and_slots_are_updated_too():
    def seconds(**train: object) -> float:
        given = work(pieces(0), device=A100)
        settings = given.settings
        changed = settings.model_copy(update={"train": settings.train.model_copy(update=train)})
        again = type(given)(
            given.pieces,
            [],
            changed,
            given.links,
            math.inf,
            None,
            device_times.bytes_per_second(A100),
        )
        return again.update(given.degrees, [4e9])

    unit = 1e9 / (0.8 * 1_555e9)
    assert seconds() == pytest.approx(20 * unit)
    assert seconds(optimizer="adamw") == pytest.approx(28 * unit)
    assert seconds(ema_decay=0.9) == pytest.approx(28 * unit)


def test_one_device_is_one_device():
    given = work(pieces(0), device=A100)
    step = given.step(given.degrees, [])
    assert step.speedup == pytest.approx(1)
    assert step.length == pytest.approx(given.alone(12, remat=False))


@pytest.mark.parametrize("seed", range(5))
def test_a_shard_takes_at_least_its_part(seed):
    device = dataclasses.replace(A100, operation_seconds=1e-9 * 10**seed)
    costs = pieces(seed)
    times = PieceTimes(costs, device, "float32")
    for examples in (1, 7):
        whole = times(examples, 1)
        for count in (2, 3, 8):
            for one, other in zip(times(examples, count), whole, strict=True):
                for part, all_of_it in zip(one, other, strict=True):
                    assert all_of_it / count * (1 - 1e-12) <= part <= all_of_it


def test_small_operations_gain_nothing_from_shards():
    (cost,) = pieces(0, 1)
    cost = dataclasses.replace(
        cost, split_flops=cost.flops, split_activation_bytes=cost.activation_bytes
    )
    small, large = (
        PieceTimes([each], A100, "float32")
        for each in (
            cost,
            dataclasses.replace(cost, flops=10**13, split_flops=10**13),
        )
    )
    assert small(1, 8)[0].forward == pytest.approx(small(1, 1)[0].forward, rel=1e-3)
    assert large(1, 8)[0].forward == pytest.approx(large(1, 1)[0].forward / 8, rel=1e-2)


def test_equal_pieces_take_equally_long_and_others_do_not():
    one, other = pieces(3, 2)
    split = dataclasses.replace(one, split_flops=0)
    times = PieceTimes([one, other, one, split], A100, "float32")
    found = times(1, 2)
    assert found[0] == found[2] != found[1]
    assert times(1, 1)[3] == times(1, 1)[0]
    expected = device_times.times(one, A100, "float32", 2.0)
    assert times(1, 1)[0] == pytest.approx(expected)
