"""The results of a search, as a table."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.planning.plan import size_text, time_text
from stagecraft.trainer_module.planning.search.found import Candidate, Found, others

_TIMES = {
    "flops": "operations, without links: use --measure, or name the devices, for seconds",
    "peak": "from published rates, and the share of them that published trainings reach",
    "measured": "measured on this machine, each kind of layer by itself",
}

_HEADS = ("", "workers", "replicas", "stages", "shards", "microbatches", "other settings")


def found_text(found: Found, model: str, given: dict[str, Any]) -> str:
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


def _count(found: Found) -> str:
    text = f"{_counted(found.divisions, 'division')} of the devices"
    if found.too_large:
        text += f", of which at least {found.too_large:,} do not fit into memory"
    return f"{text}; {_counted(found.priced, 'step')} predicted, the others are slower by a bound."


def _idle(found: Found) -> list[str]:
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


def _table(found: Found) -> list[str]:
    step = "step" if found.times != "flops" else "operations"
    heads = [*_HEADS, step, "speed-up", "memory", "bubble", "traffic", "slower because of"]
    rows = [heads]
    for number, each in enumerate(found.candidates, 1):
        degrees = [str(each.settings[name]) for name in _HEADS[1:6]]
        rows.append(
            [
                str(number),
                *degrees,
                ", ".join([each.settings["strategy"], *others(each)]),
                time_text(each.step) if found.times != "flops" else f"{each.step:.3g}",
                f"{each.speedup:.2f}",
                size_text(each.memory_bytes),
                f"{each.bubble:.0%}",
                size_text(each.traffic_bytes),
                each.reason,
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = (6, len(heads) - 1)
    return [
        "  ".join(
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
