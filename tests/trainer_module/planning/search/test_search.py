"""The search against all topologies, one by one."""

import dataclasses
import itertools
from typing import Any

import pytest
from random_costs import pieces, work

from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.collective_costs import Links
from stagecraft.trainer_module.planning.cost_model import CostModel, Degrees
from stagecraft.trainer_module.planning.search.search import Search, candidates, key
from stagecraft.trainer_module.planning.search.space import Space, divisors

DEVICE = Accelerator(
    name="device",
    memory_gb=1,
    memory_gb_per_second=1e-6,  # 1,000 bytes a second
    link_gb_per_second=1,
    float32_tflops=1e-9,  # 1,000 operations a second
    float64_tflops=1e-10,
    float16_tflops=1e-8,
    bfloat16_tflops=1e-8,
    operation_seconds=2.0,
)

SLOW_MEMORY = dataclasses.replace(DEVICE, memory_gb_per_second=1e-8)
"""Updates take a large part of a step."""


def everything(given: CostModel, hosts: int, devices: int) -> list[Degrees]:
    """All degrees that the rules of ``parallel:`` allow, by other code than the search's."""
    batch, count = given.settings.train.batch_size, len(given.pieces)
    few = range(1, devices + 1)
    found = []
    for workers, replicas, stages, shards in itertools.product(
        range(1, hosts + 1), few, range(1, min(devices, count) + 1), divisors(devices)
    ):
        if replicas * stages * shards > devices or batch % (workers * replicas):
            continue
        for microbatches, accumulate, virtual, order, remat, zero in itertools.product(
            range(1, 4 * stages + 1),
            divisors(batch),
            range(1, 9),
            ("1f1b", "gpipe"),
            (False, True),
            (0, 1),
        ):
            if (
                batch % (workers * replicas * microbatches * accumulate)
                or (stages == 1 and (microbatches, virtual, order) != (1, 1, "1f1b"))
                or (virtual > 1 and (microbatches % stages or order != "1f1b"))
                or virtual * stages > count
                or (zero and (replicas == 1 or workers > 1))
            ):
                continue
            found.append(
                Degrees(
                    "grid",
                    workers,
                    replicas,
                    stages,
                    virtual,
                    shards,
                    microbatches,
                    accumulate,
                    order,
                    remat,
                    zero,
                )
            )
    return found


def accepted(costs, shards, starts):
    """Whether shards leave no more than half of the largest stage whole."""
    stages = [costs[a:b] for a, b in itertools.pairwise([0, *starts, len(costs)])]
    whole = [sum(each.parameters - split(each, shards) for each in stage) for stage in stages]
    largest = max(sum(each.parameters for each in stage) for stage in stages)
    return shards == 1 or max(whole) <= largest / 2


def split(cost, shards):
    few = cost.most_shards is not None and shards > cost.most_shards
    return 0 if few else cost.split_parameters


def by_trying(given: CostModel, hosts: int, devices: int) -> dict[Any, Any]:
    """The least time of each division, with cuts as a plan chooses them."""
    best: dict[Any, Any] = {}
    for degrees in everything(given, hosts, devices):
        starts = given.cut(degrees)
        if starts is None or not accepted(given.pieces, degrees.shards, starts):
            continue
        orders = schedule.passes(
            degrees.microbatch_schedule,
            degrees.microbatches,
            degrees.stages,
            degrees.virtual_stages,
        )
        span = schedule.span(schedule.timetable(orders, *given.passes(degrees, starts)))
        length = degrees.accumulate * span + sum(given.exchange(degrees, starts))
        division = degrees.workers, degrees.replicas, degrees.stages, degrees.shards
        found = key(degrees, length)
        if division not in best or found < best[division]:
            best[division] = found
    return best


@pytest.mark.parametrize("seed", range(6))
def test_no_topology_is_faster(seed):
    given = work(pieces(seed), links=Links(devices=10.0 ** (seed - 3), hosts=0.1))
    found = Search(given, Space(given, hosts=1, devices=4)).run().best
    assert [each.key for each in found] == sorted(by_trying(given, 1, 4).values())[:10]


@pytest.mark.parametrize("slow_memory", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_with_the_rates_of_a_device(seed, slow_memory):
    device = SLOW_MEMORY if slow_memory else DEVICE
    links = Links(devices=10.0 ** (seed + 1), hosts=0.1)
    given = work(pieces(seed), links=links, device=device)
    found = Search(given, Space(given, hosts=1, devices=4)).run().best
    tried = sorted(by_trying(given, 1, 4).values())[:10]
    assert [each.key for each in found] == tried
    losses = [each.losses for each in candidates(given, found)]
    assert all(each.update > 0 and each.shards >= 0 for each in losses)
    assert [each.step for each in losses] == pytest.approx([each.step for each in found])


def test_the_search_takes_no_shards_that_the_engine_refuses():
    costs = [
        dataclasses.replace(each, split_parameters=each.parameters // 3, split_flops=each.flops)
        for each in pieces(0)
    ]
    found = Search(given := work(costs), Space(given, hosts=1, devices=4)).run().best
    assert found
    assert all(each.degrees.shards == 1 for each in found)


@pytest.mark.parametrize("seed", range(3))
def test_between_hosts_as_well(seed):
    given = work(pieces(seed, 3, frozen=1), batch_size=8, links=Links(devices=50.0, hosts=5.0))
    found = Search(given, Space(given, hosts=2, devices=2)).run().best
    assert [each.key for each in found] == sorted(by_trying(given, 2, 2).values())[:10]


@pytest.mark.parametrize("seed", range(8))
def test_under_the_memory_of_the_devices(seed):
    costs = pieces(seed)
    free = work(costs, links=Links(devices=5.0))
    space = Space(free, hosts=1, devices=4)
    sizes = [each.memory_bytes for each in candidates(free, Search(free, space).run().best)]
    given = work(costs, links=Links(devices=5.0), memory=0.8 * min(sizes))
    result = Search(given, space).run(keep=100)
    tried = by_trying(given, 1, 4)
    assert [each.step for each in result.best] == [
        pytest.approx(each[0]) for each in sorted(tried.values())
    ]
    assert all(given.fits(each.degrees, each.starts) for each in result.best)
    fitting = {
        (each.workers, each.replicas, each.stages, each.shards)
        for each in everything(given, 1, 4)
        if given.cut(each) is not None
    }
    assert result.too_large == result.divisions - len(fitting)
    assert result.too_large > 0
