"""The result of a search: as data, as a sentence, as a table. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stagecraft.common.text import columns, size
from stagecraft.trainer_module.planning.plan import time_text

_TIMES = {
    "flops": "operations, without links: use --measure, or name the devices, for seconds",
    "peak": "from published rates, and the share of them that published trainings reach",
    "measured": "measured on this machine, each kind of layer by itself",
}

_HEADS = ("", "workers", "replicas", "stages", "shards", "microbatches", "other settings")


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
class SearchResult:
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
    def of_record(cls, entry: Mapping[str, Any]) -> SearchResult:
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


def sentence(found: SearchResult) -> str:
    """The choice, for a log."""
    best = found.best
    names = ("replicas", "stages", "virtual_stages", "shards", "microbatches", "accumulate")
    degrees = [f"{name}: {best.settings[name]}" for name in names if best.settings[name] > 1]
    degrees += [text for text in _others(best) if not text.startswith(("virtual", "accumulate"))]
    listed = f" ({', '.join(degrees)})" if degrees else ""
    return (
        f"parallel.strategy: auto chose {best.settings['strategy']}{listed} on {best.devices} of "
        f"{found.devices} devices, with a predicted speed-up of {best.speedup:.2f} over one device"
    )


def _others(candidate: Candidate) -> list[str]:
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


def result_text(found: SearchResult, model: str, given: dict[str, Any]) -> str:
    """The text that ``stagecraft plan --search`` prints.

    Args:
        given: values of ``parallel:`` before the search.
    """
    lines = [
        f"{model} on {_counted(found.devices, 'device')}, "
        f"{_counted(found.batch_size, 'example')} a step; the fastest first:",
        "",
        *_table(found),
        "",
        f"memory, traffic: of the device with the most; bubble: share of the step. Times: "
        f"{_TIMES[found.times]}.",
        _count(found),
        *_idle(found),
        "",
        f"best          {settings_text(found.best, given) or 'the settings as they are'}",
    ]
    return "\n".join(lines)


def settings_text(candidate: Candidate, given: dict[str, Any]) -> str:
    """Options for the settings that a candidate changes."""
    changes = {
        name: value for name, value in candidate.settings.items() if given.get(name) != value
    }
    return " ".join(
        f"--set parallel.{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in changes.items()
    )


def _count(found: SearchResult) -> str:
    text = f"{_counted(found.divisions, 'division')} of the devices"
    if found.too_large:
        text += f", of which at least {found.too_large:,} do not fit into memory"
    return f"{text}; {_counted(found.priced, 'step')} predicted, the others are slower by a bound."


def _idle(found: SearchResult) -> list[str]:
    """A line if the batch size may be the reason why devices have nothing to do."""
    more = -found.batch_size % found.devices
    if found.best.devices == found.devices or not 0 < more <= found.batch_size:
        return []
    return [
        f"The fastest uses {found.best.devices:,} of {found.devices:,} devices. Replicas have "
        f"equally many examples, and {found.devices:,} does not divide {found.batch_size:,}: try "
        f"train.batch_size: {found.batch_size + more:,}."
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def _table(found: SearchResult) -> list[str]:
    step = "step" if found.times != "flops" else "operations"
    heads = [*_HEADS, step, "speed-up", "memory", "bubble", "traffic", "slower because of"]
    rows = [heads]
    for number, each in enumerate(found.candidates, 1):
        degrees = [str(each.settings[name]) for name in _HEADS[1:6]]
        rows.append(
            [
                str(number),
                *degrees,
                ", ".join([each.settings["strategy"], *_others(each)]),
                time_text(each.step) if found.times != "flops" else f"{each.step:.3g}",
                f"{each.speedup:.2f}",
                size(each.memory_bytes),
                f"{each.bubble:.0%}",
                size(each.traffic_bytes),
                each.reason,
            ]
        )
    return columns(rows, left=(6, len(heads) - 1)).splitlines()
