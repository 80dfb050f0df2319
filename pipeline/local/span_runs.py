"""Runs of one pipeline for several spans, one after the other, each in a process of its own.

It also chooses the spans that are due for a run, while new ones come and old ones change.

Memory does not grow with the number of spans. A span whose run is complete is not run again: the
notes of a run in ML Metadata have its settings, and the states of what it read.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import yaml

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.spans import MissingSpanError, Span
from stagecraft.components.metadata import file, rollbacks, run_metadata
from stagecraft.components.metadata.run_metadata import RunMetadata
from stagecraft.pipeline.checks import early_checks
from stagecraft.pipeline.local import layout, nodes
from stagecraft.pipeline.local.protocol import Event, RunSpec
from stagecraft.pipeline.local.span_states import Inputs, SpanStates
from stagecraft.pipeline.local.supervisor import Outcome, supervise
from stagecraft.pipeline.settings import PipelineSettings, changes_as_yaml

GATE = "AnomalyGate"
"""The last component that a span in a window needs."""

_COMPLETE = ("done", "cached")


@dataclasses.dataclass(frozen=True)
class SpanRuns:
    """The runs of some settings in an output folder."""

    settings: PipelineSettings
    output: pathlib.Path
    runner: str = "local"
    to_node: str | None = None

    def check(self) -> None:
        """Refuses data without spans.

        Raises:
            SettingError: there are none, or they are not on a local disk.
        """
        data = self.settings.data
        if not data.has_spans or files.is_remote(data.source):
            problem = "has no spans" if not data.has_spans else "is on no local disk"
            use = "a local path such as data/span-{SPAN}, or data/{YYYY}-{MM}-{DD}"
            raise SettingError("data.source", data.source, problem, use)

    def of(self, span: Span) -> PipelineSettings:
        """The settings of the run for a span."""
        data = self.settings.data.model_copy(update={"span": span.name})
        return self.settings.model_copy(update={"data": data})

    def newest_first(self) -> Iterator[Span]:
        """All spans that exist, the newest first; looks up the files of each when it is its turn.

        A fixed ``data.span`` does not matter.
        """
        data = self.settings.data.model_copy(update={"span": spans.LATEST})
        try:
            yield from spans.newest_first(early_checks.span_patterns(data))
        except MissingSpanError:  # there is none yet
            return

    def every(self) -> list[Span]:
        """All spans that exist, the oldest first."""
        return [*self.newest_first()][::-1]

    def between(self, text: str) -> tuple[list[Span], list[str]]:
        """The spans of a range that exist, and the names of those in between that do not.

        Args:
            text: ``FIRST:LAST``, each a number or a date; or one span. LAST may be ``latest``.

        Raises:
            SettingError: the text is no range, or the range ends before it begins.
            MissingSpanError: no span in the range exists.
        """
        first, colon, last = text.partition(":")
        option = "--spans"
        low = spans.number_of(first, option)
        high = spans.number_of(last if colon else first, option)  # None: without end
        use = "FIRST:LAST, each a number or a date, such as 1:30"
        if low is None:
            raise SettingError(option, text, "names no first span", use)
        if high is not None and high < low:
            raise SettingError(option, text, "ends before it begins", f"{last}:{first}")
        there = self.every()
        found = [
            each for each in there if low <= each.number and (high is None or each.number <= high)
        ]
        if not found:
            exist = [each.name for each in there]
            raise MissingSpanError(self.settings.data.source, text, exist, option)
        numbers = {each.number for each in found}
        missing = (each for each in range(min(numbers), max(numbers)) if each not in numbers)
        return found, [spans.name_of(each, self.settings.data.source) for each in missing]

    def completed(self, wanted: Sequence[Span], to_node: str | None = None) -> dict[int, str]:
        """IDs of runs that completed with these settings, files, schema and code, by span.

        Spans without such a run are left out. Reads the runs of the output folder once.
        """
        known = nodes.of(self.settings)
        is_whole = nodes.between(nodes.TRAINER, known, None, to_node)
        sections = None if is_whole else ("data", "task")
        settings = _settings(changes_as_yaml(self.settings), sections)
        needed = {each for each in known if nodes.between(each, known, None, to_node)}
        found: dict[int, str] = {}
        for span, run in self._runs(wanted, is_whole=is_whole):
            if span in found or _settings(run.notes.settings, sections) != settings:
                continue
            complete = {
                each.name for each in run_metadata.component_runs(run) if each.state in _COMPLETE
            }
            if needed <= complete:
                found[span] = str(run.context.name)
        return found

    def readable(self, names: Sequence[str]) -> list[str]:
        """Leaves out spans that are gone, and those that AnomalyGate refused as they are now."""
        there = [each for each in self.newest_first() if each.name in names]
        refused = {
            span
            for span, run in self._runs(there, is_whole=False)
            for each in run_metadata.component_runs(run)
            if each.name == GATE and each.state == "failed"
        }
        return [each.name for each in reversed(there) if each.number not in refused]

    def pushed(self) -> dict[str, int | str]:
        """:func:`spans.told` of the span whose model was pushed last; empty: there is none."""
        metadata_db = layout.metadata_db(self.output)
        if not metadata_db.exists():
            return {}
        store = file.open_store(metadata_db)
        for artifact in rollbacks.newest_pushed(store):
            for context in store.get_contexts_by_artifact(artifact.id):
                if context.type != "pipeline_run":
                    continue
                outputs = RunMetadata(store, context).outputs()
                if read := spans.told_of(map(run_metadata.of_artifact, outputs)):
                    return read[-1]
        return {}

    def _runs(self, wanted: Sequence[Span], *, is_whole: bool) -> Iterator[tuple[int, RunMetadata]]:
        """Runs that read these spans as they are now, the newest first, with their spans."""
        metadata_db = layout.metadata_db(self.output)
        if not metadata_db.exists() or not wanted:
            return
        inputs = Inputs.of(self.settings)
        states = {inputs.states(span).of(whole=is_whole): span.number for span in wanted}
        store = file.open_store(metadata_db)
        for context in run_metadata.run_contexts(metadata_db):
            run = RunMetadata(store, context)
            state = SpanStates(run.notes.span_read, run.notes.span_whole).of(whole=is_whole)
            if state in states:
                yield states[state], run

    def run(
        self,
        span: Span,
        log: IO[bytes],
        on_event: Callable[[Event], None],
        *,
        to_node: str | None = None,
        command: str = "",
    ) -> Outcome:
        """Runs the pipeline for a span.

        Args:
            command: the command line of the run, without secrets.

        Raises:
            UserError: the data of the span do not fit the settings.
        """
        settings = self.of(span)
        early_checks.check_data(settings)
        spec = RunSpec(
            settings,
            self.output.absolute(),
            runner=self.runner,
            to_node=to_node,
            command=command,
        )
        return supervise(spec, log, on_event)


def _settings(text: str, sections: Sequence[str] | None) -> dict[str, object]:
    """Settings in YAML without ``data.span``: the state of the files tells the span.

    Args:
        sections: those that count; None: all.
    """
    tree: dict[str, object] = yaml.safe_load(text or "{}") or {}
    data = tree.get("data")
    if isinstance(data, dict):
        data.pop("span", None)
    return {name: each for name, each in tree.items() if sections is None or name in sections}


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
