"""Measures the phases of a training: train, evaluate, save, export."""

from __future__ import annotations

import time
from collections.abc import Callable

from stagecraft.trainer_module.processes import events

TRAIN, EXPORT = "train", "export"


class Phases:
    """Reports each phase that begins, and sums up the seconds of each."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        """Starts without a phase."""
        self._clock = clock
        self._now: tuple[str, float] | None = None
        self._seconds: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        """Begins a phase, and ends the one before."""
        self._add_elapsed()
        self._now = phase, self._clock()
        events.emit("phase", f"phase: {phase}", phase=phase)

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far, in this attempt."""
        self._add_elapsed()
        return dict(self._seconds)

    def _add_elapsed(self) -> None:
        if self._now is not None:
            phase, since = self._now
            now = self._clock()
            self._seconds[phase] = self._seconds.get(phase, 0.0) + now - since
            self._now = phase, now
