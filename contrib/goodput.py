"""The share of a training's time that is useful on many hosts, which fail and differ in speed.

A synchronous step lasts as long as its slowest replica. A lost host ends the work of all: they
start again from the newest checkpoint. Frequent checkpoints cost time, rare ones lose work. Imports
no TensorFlow.

Sources: Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006, "A
higher order estimate of the optimum checkpoint interval for restart dumps", equations 20 and 37.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from stagecraft.common.errors import SettingError, nearest
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.planning.plan import Plan

MONTH_HOURS = 30 * 24.0

_GAPS = 20_000
"""Times between failures that a simulation draws: the standard error is below one percent."""

_SPANS = 65_536
"""Replicas times steps that a simulation draws at once, for its memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faults:
    """Faults and their costs."""

    mtbf: float = 6_334.0
    """Mean hours between two failures of one host. The default is that of Llama 3: 419 unexpected
    interruptions in 54 days on 2,048 hosts of 8 GPUs (arXiv 2407.21783, section 3.3.4)."""
    restart: float = 600.0
    """Seconds from a failure to the next step: notice it, replace the host, load the checkpoint."""
    checkpoint: float = 60.0
    """Seconds in which a checkpoint stops the training."""
    jitter: float = 0.02
    """Relative standard deviation of the time of a pass through a stage, on each device."""


def parse_faults(text: str) -> Faults:
    """Faults as a person writes them: ``mtbf=5000,restart=300``.

    Raises:
        SettingError: a name is unknown, or a value is no number above 0 (``jitter``: from 0).
    """
    known = {field.name: field.default for field in dataclasses.fields(Faults)}
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (each.strip() for each in part.partition("="))
        example = ",".join(f"{each}={default:g}" for each, default in known.items())
        if name not in known:
            use = nearest(name, known, f"NAME=NUMBER, such as {example}")
            raise SettingError("--faults", name, "is unknown", use)
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = math.nan
        least = 0.0 if name == "jitter" else math.ulp(0.0)
        if not least <= found[name] < math.inf:
            problem = "is not a number" if name == "jitter" else "is not a number above 0"
            raise SettingError("--faults", part, problem, f"{name}={known[name]:g}")
    return Faults(**found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goodput:
    """Shares of a month; they add up to 1."""

    hosts: int
    failures: float
    """Expected failures in the month."""
    checkpoint_seconds: float
    """Seconds of training between two checkpoints."""
    checkpoint_every: int
    """The same in steps: a value for ``train.checkpoint_every``."""
    useful: float
    """Steps at the speed of the plan that a checkpoint kept."""
    stragglers: float
    """Seconds for which steps wait for their slowest replica, besides."""
    checkpoints: float
    lost: float
    """Work after the last checkpoint before a failure."""
    restarts: float


def goodput(plan: Plan, hosts: int, faults: Faults, seed: int = 0) -> Goodput:
    """Simulates a month of a training on ``hosts`` workers as the plan describes one of them.

    Args:
        plan: with times in seconds.
        seed: of the simulation; the same seed gives the same result.
    """
    if plan.step_seconds is None:
        raise ValueError("the plan has no times in seconds")
    draw = np.random.default_rng(seed)
    slower = stretch(plan, hosts * len(plan.devices), faults.jitter, draw)
    step = plan.step_seconds * slower
    between = faults.mtbf * 3600 / hosts
    interval = max(step, checkpoint_interval(faults.checkpoint, between))
    every = max(1, round(interval / step))
    shares = simulate(every * step, faults, between, draw)
    useful, checkpoints, lost, restarts = (float(share) for share in shares)
    return Goodput(
        hosts=hosts,
        failures=MONTH_HOURS * 3600 / between,
        checkpoint_seconds=every * step,
        checkpoint_every=every,
        useful=useful / slower,
        stragglers=useful * (1 - 1 / slower),
        checkpoints=checkpoints,
        lost=lost,
        restarts=restarts,
    )


def checkpoint_interval(cost: float, between: float) -> float:
    """The best time of training between checkpoints (Daly, equation 37).

    For a small cost it is Young's ``sqrt(2 * cost * between)``.

    Args:
        cost: seconds of a checkpoint.
        between: mean seconds between failures.
    """
    half = cost / (2 * between)
    if half >= 1:
        return between
    return math.sqrt(2 * cost * between) * (1 + math.sqrt(half) / 3 + half / 9) - cost


def simulate(
    interval: float, faults: Faults, between: float, draw: np.random.Generator
) -> np.ndarray:
    """Shares of the time: useful, checkpoints, lost, restarts: ``[4]``.

    Args:
        interval: seconds of training between checkpoints.
        between: mean seconds between failures, in exponential gaps.
    """
    gaps = draw.exponential(between, _GAPS)
    restarts = np.minimum(gaps, faults.restart)
    running = gaps - restarts
    cycle = interval + faults.checkpoint
    done = np.floor(running / cycle)
    sums = [done * interval, done * faults.checkpoint, running - done * cycle, restarts]
    shares: np.ndarray = np.array([part.sum() for part in sums]) / gaps.sum()
    return shares


def stretch(plan: Plan, replicas: int, jitter: float, draw: np.random.Generator) -> float:
    """How many times longer a step of ``replicas`` lasts if each pass differs by chance.

    The last replica that passes through its stages ends the step.
    """
    undisturbed = float(spans(plan, 1, 1, 0.0, draw)[0, 0])
    if not undisturbed:
        return 1.0
    disturbed = spans(plan, max(4, _SPANS // replicas), replicas, jitter, draw)
    return max(1.0, float(disturbed.max(axis=1).mean()) / undisturbed)


def spans(
    plan: Plan, samples: int, replicas: int, jitter: float, draw: np.random.Generator
) -> np.ndarray:
    """Seconds of the schedule's passes, without copies: ``[samples, replicas]``.

    The times of passes have a log-normal distribution with the mean of the plan.

    Args:
        jitter: relative standard deviation of the time of a pass.
    """
    devices = plan.stage_count
    means = {
        schedule.FORWARD: [stage.forward_seconds or 0.0 for stage in plan.stages],
        schedule.BACKWARD: [stage.backward_seconds or 0.0 for stage in plan.stages],
    }
    sigma = math.sqrt(math.log1p(jitter**2))
    free = [np.zeros((samples, replicas)) for _ in range(devices)]
    ends: dict[schedule.Pass, np.ndarray] = {}
    order, virtual = plan.microbatch_schedule, plan.virtual_stages
    for now in schedule.in_order(order, plan.microbatches, devices, virtual):
        before = 1 if now.direction == schedule.BACKWARD else -1
        noise = draw.lognormal(-(sigma**2) / 2, sigma, (samples, replicas))
        ready = ends.pop(now._replace(stage=now.stage + before), 0.0)
        device = now.stage % devices
        begin = np.maximum(free[device], ready)
        free[device] = ends[now] = begin + means[now.direction][now.stage] * noise
    latest: np.ndarray = np.maximum.reduce(free)
    return latest
