"""Simulated months of a training, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from stagecraft.common.text import columns
from stagecraft.trainer_module.planning.faults import Faults
from stagecraft.trainer_module.planning.goodput import Goodput


def goodput_text(months: Sequence[Goodput], faults: Faults) -> str:
    """The text that ``stagecraft plan --goodput`` prints."""
    names = ["hosts", "failures", "useful", "stragglers", "checkpoints", "lost work", "restarts"]
    lines = [[*names, "a checkpoint every"]]
    for month in months:
        shares = (month.stragglers, month.checkpoints, month.lost, month.restarts)
        lines.append(
            [
                f"{month.hosts:,}",
                f"{month.failures:,.1f}",
                f"{month.useful:.1%}",
                *(f"{share:.1%}" for share in shares),
                f"{_duration(month.checkpoint_seconds)} ({month.checkpoint_every:,} steps)",
            ]
        )
    return (
        "A month of training, simulated; each host as planned above:\n"
        f"{columns(lines)}\n"
        f"A host fails every {faults.mtbf:,.0f} h; a restart takes {faults.restart:g} s, a "
        f"checkpoint {faults.checkpoint:g} s; the time of a pass varies by {faults.jitter:.0%}."
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
