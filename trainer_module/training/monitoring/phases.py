"""What a training is at, and how long it has been at each."""

from __future__ import annotations

import time
from collections.abc import Callable

from stagecraft.trainer_module.processes import events

TRAIN, EXPORT = "train", "export"


class Phases:
    """Tells whoever listens which phase begins, and adds up their seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        """Nothing has begun.

        Args:
            clock: seconds since whenever.
        """
        self._clock = clock
        self._now: tuple[str, float] | None = None
        self._seconds: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        """The phase before it, if any, ends."""
        self._note()
        self._now = phase, self._clock()
        events.emit("phase", f"phase: {phase}", phase=phase)

    def seconds(self) -> dict[str, float]:
        """Of each phase, up to now; of this attempt alone."""
        self._note()
        return dict(self._seconds)

    def _note(self) -> None:
        if self._now is not None:
            phase, since = self._now
            now = self._clock()
            self._seconds[phase] = self._seconds.get(phase, 0.0) + now - since
            self._now = phase, now
