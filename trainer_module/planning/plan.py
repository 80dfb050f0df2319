"""A topology and its predicted costs, as data. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """The layers and costs of one stage."""

    first: str
    last: str
    layers: int
    parameters: int
    trainable_parameters: int
    """The part of ``parameters`` that training changes."""
    flops: int
    """Floating-point operations of one example, forward."""
    activation_bytes: int
    """Bytes of activations, for one example."""
    output_bytes: int
    """Bytes sent to the next stage, for one example."""
    split_parameters: int = 0
    """The part of ``parameters`` that shards divide."""
    shard_bytes: int = 0
    """Bytes between the first shard and each other one in a forward pass of one example."""
    memory_bytes: int
    """Bytes on its device: weights; gradients and optimizer slots of trained weights; activations
    of the microbatches that it holds; and"""
    pass_bytes: int = 0
    """bytes that a backward pass takes for itself."""
    share: float
    """Share of the time of all stages."""
    backward_share: float
    """Share of the backward pass in the stage's time; 0 before the first trained weight."""
    forward_seconds: float | None
    """Forward time of a microbatch; None if times are operations."""
    backward_seconds: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TiedWeight:
    """A weight that several stages use."""

    path: str
    stages: list[int]
    """The first one holds it; the others copy it, and send back their gradients."""
    bytes: int
    """Bytes of these copies and gradients in a step, in each replica."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A faster topology."""

    strategy: str
    replicas: int
    stages: int
    microbatches: int
    virtual_stages: int
    cuts: str
    memory_bytes: int
    """Bytes on the device that needs the most."""
    speedup: float
    """Speed-up over one device."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A topology and its predicted costs."""

    model: str
    strategy: str
    workers: int
    devices: list[list[str]]
    """Devices of one worker: per replica, those of each stage, with its shards."""
    shards: int = 1
    """Devices of each stage."""
    virtual_stages: int = 1
    """Parts of the model on each device. ``stages`` below are these parts: the device of part p is
    number p mod K."""
    batch_size: int
    """Examples of a step, over all devices."""
    accumulate: int
    microbatches: int
    microbatch_size: int
    microbatch_schedule: str
    times: str
    """Origin of the times: ``measured``, ``peak`` or ``flops``."""
    cuts: list[str]
    cuts_asked: str
    stages: list[StagePlan]
    tied: list[TiedWeight]
    bubble: float
    """``(K - 1) / (V * M + K - 1)``, for equal stages."""
    idle: float
    step_seconds: float | None
    all_reduce_seconds: float | None
    """Part of ``step_seconds``: summing the gradients of all replicas of all workers; under
    ``parameter_server``, fetching and updating the variables. None: not known, and counted
    nowhere."""
    network_gbit: float | None
    """Assumed Gbit/s between hosts; None: hosts exchange nothing."""
    speedup: float
    """Speed-up over one device."""
    speedup_over_naive: float
    """Speed-up over the same stages run one after the other, without microbatches."""
    ideal_speedup: int
    limit: str
    suggestion: Suggestion | None

    @property
    def stage_count(self) -> int:
        """Number of stages of a replica; each has the devices of its shards."""
        return len(self.devices[0]) // self.shards
