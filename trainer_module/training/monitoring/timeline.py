"""Writes the timeline of a step: as data, and for a trace viewer.

benchmarks/RESULTS.md has the cost of the recorded step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from stagecraft.trainer_module.planning import schedule
from stagecraft.trainer_module.training.monitoring.op_trace import record_ops
from stagecraft.trainer_module.training.monitoring.spans import Span, find_spans, idle, slots_of

DATA, TRACE = "timeline.json", "timeline.trace.json"

_log = logging.getLogger(__name__)


class Timeline:
    """Records one step, and writes its timeline."""

    def __init__(self, step: int, folder: str, microbatches: int, accumulate: int = 1):
        """Records nothing yet.

        Args:
            step: to record, from 1.
            folder: gets ``timeline.json`` and ``timeline.trace.json``.
            microbatches: of the schedule, for the predicted bubble.
        """
        self.step = step
        self._folder = pathlib.Path(folder)
        self._microbatches = microbatches
        self._accumulate = accumulate

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """The block takes the step."""
        with record_ops() as ops:
            yield
        spans = find_spans(ops, self._accumulate)
        data = describe(self.step, spans, self._microbatches)
        (self._folder / DATA).write_text(json.dumps(data, indent=1))
        (self._folder / TRACE).write_text(json.dumps(chrome_trace(spans)))
        _log.info(
            "Step %d took %.4f s; stages waited %.1f %% of it (%.1f %% with equal stages). For a "
            "trace viewer: %s",
            *(self.step, data["seconds"], 100 * data["idle"], 100 * data["bubble"]),
            self._folder / TRACE,
        )


def describe(step: int, spans: list[Span], microbatches: int) -> dict[str, Any]:
    """The content of ``timeline.json``, with the measured and the predicted bubble."""
    stages = 1 + max((span.stage for span in spans), default=0)
    seconds = max((span.end for span in spans), default=0.0)
    busy = [
        sum(slot.end - slot.begin for slot in slots_of(spans) if slot.done.stage == stage)
        for stage in range(stages)
    ]
    return {
        "step": step,
        "seconds": seconds,
        "bubble": schedule.bubble(microbatches, stages),
        "idle": idle(spans),
        "shares": [each / (sum(busy) or 1) for each in busy],
        "spans": [_as_json(span) for span in spans],
    }


def _as_json(span: Span) -> dict[str, Any]:
    fields = dataclasses.asdict(span)
    return {_FIELDS.get(name, name): value for name, value in fields.items()}


_FIELDS = {"kind": "what", "accumulation_step": "turn"}
"""Names of fields in ``timeline.json``."""


def chrome_trace(spans: Iterable[Span]) -> dict[str, Any]:
    """The trace for chrome://tracing and Perfetto: a process per replica, a thread per stage.

    Format: "Trace Event Format", complete events, microseconds.
    """
    spans = list(spans)
    events: list[dict[str, Any]] = []
    for replica, stage in sorted({(span.replica, span.stage) for span in spans}):
        place = {"ph": "M", "pid": replica, "tid": stage}
        events.append({"name": "process_name", "args": {"name": f"replica {replica}"}, **place})
        events.append({"name": "thread_name", "args": {"name": f"stage {stage}"}, **place})
    for span in spans:
        number = "" if span.microbatch is None else f" {span.microbatch}"
        events.append(
            {
                "name": f"{span.kind}{number}",
                "cat": span.kind,
                "ph": "X",
                "ts": span.begin * 1e6,
                "dur": (span.end - span.begin) * 1e6,
                "pid": span.replica,
                "tid": span.stage,
                "args": {"microbatch": span.microbatch, "turn": span.accumulation_step},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
