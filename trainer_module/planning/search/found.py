"""The results of a search, as data. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Losses:
    """Parts of the time of a step; they add up to it."""

    computation: float
    """The whole step, if all devices of the topology shared it evenly and nothing else took
    time."""
    bubble: float
    """Stages wait for microbatches and copies."""
    all_reduce: float
    """With the exchange of tied weights."""
    update: float = 0.0
    """The optimizer's update of the weights of the device with the most; 0: not known."""
    shards: float
    """Copies between shards, and what shards do not divide."""
    uneven: float
    """The slowest stage takes longer than the mean."""
    recomputation: float

    @property
    def step(self) -> float:
        """All of them."""
        return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A topology and its prediction."""

    settings: dict[str, Any]
    """Values of ``parallel:`` by name."""
    devices: int
    """Of all workers."""
    step: float
    """Time of a step: seconds, or floating-point operations."""
    speedup: float
    """Over one device that keeps all activations."""
    memory_bytes: int
    """Bytes on the device that needs the most."""
    bubble: float
    """Share of the step in which devices wait for microbatches and copies."""
    traffic_bytes: int
    """Bytes that the busiest device sends in a step."""
    losses: Losses
    reason: str = ""
    """Why it is slower than the best one; empty: it is the best, or as fast."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """The fastest divisions of some devices, the best one first."""

    candidates: list[Candidate]
    devices: int
    """Devices of all hosts."""
    batch_size: int
    times: str
    """Origin of the times: ``measured``, ``peak`` or ``flops``."""
    divisions: int
    """Divisions of the devices into workers, replicas, stages and shards."""
    too_large: int
    """Divisions that do not fit into memory, whatever the other settings."""
    priced: int
    """Topologies whose step was predicted; bounds show that the others are slower."""

    @classmethod
    def of_record(cls, entry: Mapping[str, Any]) -> Found:
        """From the entry ``search`` of ``record.json``."""
        candidates = [
            Candidate(**{**each, "losses": Losses(**each["losses"])})
            for each in entry["candidates"]
        ]
        return cls(**{**entry, "candidates": candidates})

    @property
    def best(self) -> Candidate:
        """The fastest."""
        return self.candidates[0]


def sentence(found: Found) -> str:
    """The choice, for a log."""
    best = found.best
    names = ("replicas", "stages", "virtual_stages", "shards", "microbatches", "accumulate")
    degrees = [f"{name}: {best.settings[name]}" for name in names if best.settings[name] > 1]
    degrees += [text for text in others(best) if not text.startswith(("virtual", "accumulate"))]
    listed = f" ({', '.join(degrees)})" if degrees else ""
    return (
        f"parallel.strategy: auto chose {best.settings['strategy']}{listed} on {best.devices} of "
        f"{found.devices} devices, with a predicted speed-up of {best.speedup:.2f} over one device"
    )


def others(candidate: Candidate) -> list[str]:
    """The other settings that are not at their defaults."""
    settings = candidate.settings
    texts = [
        f"{name}: {settings[name]}"
        for name in ("virtual_stages", "accumulate")
        if settings[name] > 1
    ]
    if settings["microbatch_schedule"] != "1f1b":
        texts.append(f"microbatch_schedule: {settings['microbatch_schedule']}")
    if settings["remat"]:
        texts.append("remat: true")
    if settings["zero"]:
        texts.append("zero: 1")
    return texts
