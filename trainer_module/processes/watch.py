"""Which process gives no sign of life: one that is frozen keeps all others waiting."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from stagecraft.trainer_module.processes.events import Event

BEFORE_START = 6
"""Times as long a process may be silent until it has found its peers: imports hold everything up,
and so does TensorFlow while it waits."""

PAUSE_SECONDS = 2.0
"""Whoever has not looked for so long was held up itself, and that time counts for nobody."""

STANDSTILL_SECONDS = 120.0
STANDSTILL_STEPS = 20.0
"""No step in all this time, and in so many times the longest call of them: it hangs, if alive."""

LONGEST_SECONDS = 3600.0
"""For what cannot be told beforehand: the first steps, an evaluation, a checkpoint, an export."""


@dataclasses.dataclass
class _Life:
    heard: float
    since: float
    """When it last told of something new."""

    started: bool = False
    phase: str = ""
    """That it has told last; one that serves has none."""

    longest: float = 0.0
    """Between two tellings of steps."""


class Watch:
    """Takes events, and says who has fallen silent."""

    def __init__(self, silence: float, clock: Callable[[], float] = time.monotonic):
        """
        Args:
            silence: seconds without an event after which a process counts as frozen.
            clock: seconds.
        """
        self._silence = silence
        self._clock = clock
        self._lives: dict[str, _Life] = {}
        self._looked = clock()

    def begin(self, name: str) -> None:
        """A process starts."""
        self._lives[name] = _Life(self._clock(), self._clock())

    def end(self, name: str) -> None:
        """A process has ended; nothing is expected of it."""
        self._lives.pop(name, None)

    def note(self, name: str, event: Event) -> None:
        """A process has told something: it lives, and maybe it steps."""
        life, now = self._lives.get(name), self._clock()
        if life is None:
            return
        life.heard = now
        if event["event"] == "started":
            life.started = True
        elif event["event"] == "progress" and event.get("phase") != "resume":
            life.longest = max(life.longest, now - life.since)
        elif event["event"] == "phase":
            life.phase = event["phase"]
        else:
            return
        life.since = now

    def quiet(self, seconds: float) -> list[str]:
        """Those who have told nothing for so long."""
        now = self._clock()
        return [name for name, life in self._lives.items() if now - life.heard > seconds]

    def silent(self) -> tuple[str, str] | None:
        """Who is frozen or hangs, and that in words."""
        now = self._clock()
        if (paused := now - self._looked) > PAUSE_SECONDS:
            for life in self._lives.values():
                life.heard += paused
                life.since += paused
        self._looked = now
        for name, life in self._lives.items():
            limit = self._silence * (1 if life.started else BEFORE_START)
            if now - life.heard > limit:
                seconds = now - life.heard
                return name, (
                    f"gave no sign of life for {seconds:.0f} s (parallel.silence_timeout_seconds)"
                )
            limit = LONGEST_SECONDS
            if life.phase == "train" and life.longest:
                limit = min(limit, max(STANDSTILL_SECONDS, STANDSTILL_STEPS * life.longest))
            if life.phase and now - life.since > limit:
                what = "took no step" if life.phase == "train" else "came no further"
                return name, f"{what} for {now - life.since:.0f} s"
        return None
