"""Detects processes that are frozen or hang: one of them keeps all others waiting."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from stagecraft.trainer_module.processes.events import Event

BEFORE_START = 6
"""Factor on the silence timeout before a start: imports and waiting for peers block heartbeats."""

PAUSE_SECONDS = 2.0
"""A longer gap between two checks means that this process was held up: the gap does not count."""

STANDSTILL_SECONDS = 120.0
STANDSTILL_STEPS = 20.0
"""A process hangs when it takes no step for both limits; steps: times its longest interval."""

LONGEST_SECONDS = 3600.0
"""Limit for phases of unknown length: the first steps, an evaluation, a checkpoint, an export."""

_BEFORE = ("resume", "precision")
"""Phases of progress before the first step."""


@dataclasses.dataclass
class _State:
    heard: float
    since: float
    """Time of its last start, phase or progress event."""
    started: bool = False
    phase: str = ""
    """The current phase; empty in a process that serves."""
    longest: float = 0.0
    """Longest interval between two progress events, in seconds."""


class LivenessMonitor:
    """Takes events, and finds processes that have fallen silent."""

    def __init__(self, silence: float, clock: Callable[[], float] = time.monotonic):
        """``silence``: seconds without an event after which a process counts as frozen."""
        self._silence = silence
        self._clock = clock
        self._states: dict[str, _State] = {}
        self._checked = clock()

    def begin(self, name: str) -> None:
        """Monitors a process from its start."""
        self._states[name] = _State(self._clock(), self._clock())

    def end(self, name: str) -> None:
        """Stops monitoring a process."""
        self._states.pop(name, None)

    def record(self, name: str, event: Event) -> None:
        """Updates the state of a process from its event."""
        state, now = self._states.get(name), self._clock()
        if state is None:
            return
        state.heard = now
        if event["event"] == "started":
            state.started = True
        elif event["event"] == "progress" and event.get("phase") not in _BEFORE:
            state.longest = max(state.longest, now - state.since)
        elif event["event"] == "phase":
            state.phase = event["phase"]
        else:
            return
        state.since = now

    def quiet(self, seconds: float) -> list[str]:
        """Processes that sent no event for ``seconds``."""
        now = self._clock()
        return [name for name, state in self._states.items() if now - state.heard > seconds]

    def find_frozen(self) -> tuple[str, str] | None:
        """Name of a process that is frozen or hangs, and a phrase that says so."""
        now = self._clock()
        if (paused := now - self._checked) > PAUSE_SECONDS:
            for state in self._states.values():
                state.heard += paused
                state.since += paused
        self._checked = now
        for name, state in self._states.items():
            silent, idle = now - state.heard, now - state.since
            if silent > self._silence * (1 if state.started else BEFORE_START):
                return name, (
                    f"sent no heartbeat for {silent:.0f} s (parallel.silence_timeout_seconds)"
                )
            limit = LONGEST_SECONDS
            if state.phase == "train" and state.longest:
                limit = min(limit, max(STANDSTILL_SECONDS, STANDSTILL_STEPS * state.longest))
            if state.phase and idle > limit:
                problem = "took no step" if state.phase == "train" else "made no progress"
                return name, f"{problem} for {idle:.0f} s"
        return None
