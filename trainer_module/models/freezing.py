"""Phases of a training run: ``train.freeze_after`` freezes more weights from step to step.

An engine traces one graph for each phase. Gradients of frozen weights are no part of the graph: TF
leaves out the ops that would compute them, and the backward pass ends before the layers in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stagecraft.trainer_module.models import patterns
from stagecraft.trainer_module.settings import TrainSettings


class Phase(NamedTuple):
    """Steps in a row that train the same weights."""

    end: int | None
    """The number of steps after which the next phase begins; None: the last phase."""
    frozen: frozenset[str]
    """Paths of the weights that ``train.freeze_after`` has frozen."""


ALL = Phase(None, frozenset())
"""The phase that trains all weights."""


def phases(train: TrainSettings, paths: Iterable[str], total_steps: int) -> list[Phase]:
    """The phases of a training run, in order.

    A weight freezes after ``round(share * total_steps)`` steps, but trains in one step at least.

    Args:
        paths: of the weights that the run trains.
        total_steps: steps of the whole run.
    """
    ends: dict[int, set[str]] = {}
    for path in paths:
        share = patterns.freeze_share(train, path)
        if share is not None and (end := max(1, round(share * total_steps))) < total_steps:
            ends.setdefault(end, set()).add(path)
    frozen: frozenset[str] = frozenset()
    result = []
    for end in sorted(ends):
        result.append(Phase(end, frozen))
        frozen |= ends[end]
    return [*result, Phase(None, frozen)]


def number_at(phases: Sequence[Phase], step: int) -> int:
    """The place of the phase of the step after ``step`` steps."""
    return next(k for k, phase in enumerate(phases) if phase.end is None or step < phase.end)
