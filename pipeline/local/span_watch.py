"""Chooses the spans that are due for a run, while new ones come and old ones change."""

from __future__ import annotations

from stagecraft.components.example_gen.spans import Span
from stagecraft.pipeline.local.span_runs import GATE, SpanRuns
from stagecraft.pipeline.local.span_states import Inputs, SpanStates


class SpanWatch:
    """The spans that were seen, and those whose run ended."""

    def __init__(self, runs: SpanRuns):
        self._runs = runs
        self._seen: dict[int, SpanStates] = {}  # at the last look
        self._ended: set[str] = set()  # states of runs that ended, also of those that failed
        self._newest = max(runs.completed(runs.every()), default=None)

    def due(self) -> list[tuple[Span, bool]]:
        """The spans to run, in order, and whether the whole pipeline; else for a window only.

        A span is due if its files are those of the last call, and no run of them has ended.
        """
        newest, window = self._newest, self._runs.settings.data.window
        recent: list[Span] = []
        for span in self._runs.newest_first():
            newest = span.number if newest is None else newest
            if span.number <= newest - window:
                break
            recent.insert(0, span)
        inputs = Inputs.of(self._runs.settings)
        states = {each.number: inputs.states(each) for each in recent}
        seen, self._seen = self._seen, states
        found = []
        for span in recent:
            whole = newest is None or span.number >= newest
            state = states[span.number]
            if seen.get(span.number) != state or state.of(whole=whole) in self._ended:
                continue
            if self._runs.completed([span], None if whole else GATE):
                self._end(state, whole=whole)
            else:
                found.append((span, whole))
        return found

    def ended(self, span: Span, *, whole: bool) -> None:
        """Notes that a run of a span that was due ended, also if it failed."""
        self._end(self._seen[span.number], whole=whole)
        if whole:
            self._newest = max(span.number, self._newest or 0)

    def has_ended(self, last: int | None) -> bool:
        """Whether the whole pipeline ran for this span, or a newer one; None: for ever."""
        return last is not None and self._newest is not None and self._newest >= last

    def _end(self, state: SpanStates, *, whole: bool) -> None:
        self._ended |= {state.read, *([state.whole] if whole else [])}
