"""What a topology will be, and what is predicted of it: data. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """What one stage is, and takes."""

    first: str
    """Its first layer, and"""
    last: str
    """its last one."""
    layers: int
    parameters: int
    trainable_parameters: int
    """Of them, those that training changes."""
    flops: int
    """Floating-point operations of one example, forward."""
    activation_bytes: int
    """Of one example."""
    output_bytes: int
    """What goes on to the next stage, of one example."""
    memory_bytes: int
    """On its device: weights; gradients and slots of those that are trained; activations of the
    microbatches that it holds."""
    share: float
    """Of the time that all stages take."""
    backward_share: float
    """Of the stage's own time, the part of the backward pass: 0 where nothing is trained yet."""
    forward_seconds: float | None
    """Of a microbatch; None where times are operations."""
    backward_seconds: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Another topology that is faster."""

    strategy: str
    replicas: int
    stages: int
    microbatches: int
    cuts: str
    """``auto``."""
    memory_bytes: int
    """Of the device that needs most."""
    speedup: float
    """Over one device."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A topology, and what is predicted of it."""

    model: str
    strategy: str
    workers: int
    devices: list[list[str]]
    """Of one worker: a row for each replica, in it a device for each stage."""
    batch_size: int
    """Examples of a step, over all devices."""
    accumulate: int
    microbatches: int
    microbatch_size: int
    """Examples."""
    schedule: str
    times: str
    """What they are: ``measured``, ``peak`` or ``flops``."""
    cuts: list[str]
    cuts_asked: str
    """``parallel.cuts``."""
    stages: list[StagePlan]
    bubble: float
    """``(K - 1) / (M + K - 1)``, of equal stages."""
    idle: float
    """The same of these stages."""
    step_seconds: float | None
    all_reduce_seconds: float | None
    """Of it: summing the gradients of all replicas of all workers; under ``parameter_server``,
    fetching and updating the variables. None: not known, and in none of the other figures."""
    network_gbit: float | None
    """Gbit/s between hosts that it is counted with; None: nothing crosses hosts."""
    speedup: float
    """Over one device."""
    speedup_over_naive: float
    """Over the same stages one after the other, without microbatches."""
    ideal_speedup: int
    """Over one device: as many times as there are devices."""
    limit: str
    """What keeps it from that, most of all."""
    suggestion: Suggestion | None
