"""Measures how fast a training runs, and sets the steps of the engine's next call."""

from __future__ import annotations

import time

REPORT_SECONDS = 1.0
"""Time between two reports; Python and Ctrl-C wait for the engine as long."""

_MAX_GROWTH = 8
"""Limit on the growth of the steps per call: one fast call may be an exception."""


class Pace:
    """Measures the engine's calls; the first one traces the graph, and counts only if alone."""

    def __init__(self, seconds: float = 0.0, examples: int = 0):
        """Continues the measurement of an earlier attempt."""
        self.seconds = seconds
        self.examples = examples
        self.steps_per_call = 1
        self._first: tuple[float, int] | None = None
        self._warm_at = 0.0
        self._warm_steps = 0

    @property
    def images_per_second(self) -> float:
        """Throughput of training steps, without tracing, evaluating and saving."""
        if self.seconds:
            return self.examples / self.seconds
        seconds, examples = self._first or (1.0, 0)
        return examples / seconds

    def add(self, steps: int, examples: int, seconds: float) -> None:
        """Adds one call of the engine."""
        if self._first is None:
            self._first = (seconds, examples)
            self._warm_at = time.perf_counter()
            return
        self.seconds += seconds
        self.examples += examples
        self._warm_steps += steps
        fitting = round(REPORT_SECONDS * steps / seconds)
        self.steps_per_call = max(1, min(fitting, _MAX_GROWTH * steps))

    def eta_seconds(self, steps: int) -> float:
        """Seconds for ``steps`` more, including evaluations and checkpoints between them."""
        if self._first is None:
            return 0.0
        if not self._warm_steps:
            return self._first[0] * steps
        return (time.perf_counter() - self._warm_at) / self._warm_steps * steps
