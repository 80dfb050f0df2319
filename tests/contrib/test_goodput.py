import dataclasses
import math

import numpy as np
import pytest

from stagecraft.contrib import goodput
from stagecraft.contrib.goodput import Faults
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.planning.plan import Plan, StagePlan

HOUR = 3600.0


def stage(forward: float, backward: float) -> StagePlan:
    return StagePlan(
        first="a", last="b", layers=1, parameters=1, trainable_parameters=1, flops=1,
        activation_bytes=1, output_bytes=1, memory_bytes=1, share=0.5, backward_share=0.5,
        forward_seconds=forward, backward_seconds=backward,
    )  # fmt: skip


def plan_of(*stages: StagePlan, microbatches: int = 4, step_seconds: float | None = 10.0) -> Plan:
    return Plan(
        model="m", strategy="grid", workers=1, devices=[["GPU:0"] * len(stages)], batch_size=64,
        accumulate=1, microbatches=microbatches, microbatch_size=16, microbatch_schedule="1f1b",
        times="peak", cuts=[], cuts_asked="auto", stages=list(stages), tied=[], bubble=0.1,
        idle=0.1, step_seconds=step_seconds, all_reduce_seconds=0.0, network_gbit=None, speedup=1.0,
        speedup_over_naive=1.0, ideal_speedup=2, limit="", suggestion=None,
    )  # fmt: skip


PLAN = plan_of(stage(0.5, 1.0), stage(0.5, 1.0))


def expected_useful(interval: float, faults: Faults, between: float) -> float:
    """The share of useful time for failures with exponential gaps (Daly, equation 20)."""
    cycle = math.expm1((interval + faults.checkpoint) / between)
    return interval / (between * math.exp(faults.restart / between) * cycle)


@pytest.mark.parametrize("hosts", [1, 64, 1024, 4096])
def test_the_simulation_agrees_with_dalys_formula(hosts):
    faults = Faults(mtbf=5000, restart=300, checkpoint=30)
    between = faults.mtbf * HOUR / hosts
    interval = goodput.checkpoint_interval(faults.checkpoint, between)
    useful, *_ = goodput.simulate(interval, faults, between, np.random.default_rng(1))
    # Daly counts a failure during a restart as another full restart, as the simulation does; the
    # difference is the chance: 20,000 exponential gaps have a relative error of 1 / sqrt(20,000).
    assert useful == pytest.approx(
        expected_useful(interval, faults, between), rel=5 / math.sqrt(20_000)
    )


@pytest.mark.parametrize("hosts", [1, 1024, 16_384])
def test_no_other_interval_is_better(hosts):
    faults = Faults(checkpoint=45)
    between = faults.mtbf * HOUR / hosts
    best = goodput.checkpoint_interval(faults.checkpoint, between)
    chosen = expected_useful(best, faults, between)
    others = [expected_useful(best * 1.1**power, faults, between) for power in range(-20, 21)]
    # Daly's equation is the start of a series; what it leaves out is of the order (cost / M)^2.
    assert chosen >= max(others) * (1 - (faults.checkpoint / between) ** 2 - 1e-12)


def test_young_is_the_limit_for_a_small_cost():
    assert goodput.checkpoint_interval(1e-3, 1e6) == pytest.approx(
        math.sqrt(2 * 1e-3 * 1e6), rel=1e-3
    )


def test_a_checkpoint_that_costs_more_than_the_time_between_failures():
    assert goodput.checkpoint_interval(100.0, 20.0) == 20.0


@pytest.mark.parametrize("hosts", [1, 64, 1024, 4096])
def test_shares_add_up(hosts):
    found = goodput.goodput(PLAN, hosts, Faults())
    shares = found.useful + found.stragglers + found.checkpoints + found.lost + found.restarts
    assert shares == pytest.approx(1)
    assert found.failures == pytest.approx(hosts * 720 / Faults().mtbf)


def test_more_hosts_waste_more():
    found = [goodput.goodput(PLAN, hosts, Faults()) for hosts in (1, 64, 1024, 4096)]
    useful = [each.useful for each in found]
    assert useful == sorted(useful, reverse=True)
    steps = [each.checkpoint_every for each in found]
    assert steps == sorted(steps, reverse=True)


def test_llama_3_kept_nine_tenths_of_its_time():
    """Meta reports more than 90 percent effective time (arXiv 2407.21783, section 3.3.4).

    With the failures of the paper, and a restart in ten minutes, a checkpoint in a few seconds.
    """
    found = goodput.goodput(PLAN, 2048, Faults(checkpoint=5, jitter=0.0))
    assert found.failures * 54 / 30 == pytest.approx(419, rel=1e-3)
    assert found.useful > 0.9


def test_without_jitter_no_step_waits():
    assert goodput.stretch(PLAN, 8, 0.0, np.random.default_rng(0)) == pytest.approx(1)
    assert goodput.goodput(PLAN, 8, Faults(jitter=0.0)).stragglers == pytest.approx(0, abs=1e-12)


def test_one_stage_waits_for_the_slowest_replica():
    """One pass forward and back: the mean of the largest of n sums, by another simulation."""
    plan = plan_of(stage(1.0, 2.0), microbatches=1)
    found = goodput.stretch(plan, 64, 0.1, np.random.default_rng(0))
    sigma = math.sqrt(math.log1p(0.1**2))
    draw = np.random.default_rng(7)
    noise = draw.lognormal(-(sigma**2) / 2, sigma, (4000, 64, 2))
    expected = (noise @ [1.0, 2.0]).max(axis=1).mean() / 3.0
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", schedule.SCHEDULES)
def test_the_undisturbed_schedule_is_the_timetable(name):
    plan = plan_of(stage(1.0, 1.5), stage(2.0, 5.0), stage(0.5, 0.7), microbatches=6)
    plan = dataclasses.replace(plan, microbatch_schedule=name)
    orders = schedule.passes(name, 6, 3)
    slots = schedule.timetable(orders, [1.0, 2.0, 0.5], [1.5, 5.0, 0.7])
    found = goodput.spans(plan, 2, 3, 0.0, np.random.default_rng(0))
    assert found == pytest.approx(np.full((2, 3), schedule.span(slots)))


def test_a_seed_gives_the_same_result():
    assert goodput.goodput(PLAN, 64, Faults(), 3) == goodput.goodput(PLAN, 64, Faults(), 3)
    assert goodput.goodput(PLAN, 64, Faults(), 3) != goodput.goodput(PLAN, 64, Faults(), 4)


def test_a_plan_without_seconds_is_an_error():
    with pytest.raises(ValueError, match="seconds"):
        goodput.goodput(plan_of(stage(1, 1), step_seconds=None), 8, Faults())
