"""Runs a span, and describes the run in one line."""

from __future__ import annotations

import pathlib
import time
from typing import IO, Any, NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.components.evaluator.evaluation import ACCURACY, number
from stagecraft.components.example_gen.spans import Span
from stagecraft.pipeline.cli.terminal import run_result
from stagecraft.pipeline.cli.terminal.run_state import RunState
from stagecraft.pipeline.cli.terminal.wording import duration
from stagecraft.pipeline.local import nodes
from stagecraft.pipeline.local.span_runs import SpanRuns
from stagecraft.pipeline.local.supervisor import Outcome


class Line(NamedTuple):
    """How the run for a span ended."""

    text: str
    outcome: Outcome
    problem: str | None
    """Why it failed, or how to resume it; None: it is complete."""

    fields: dict[str, Any]
    """Its object in ``--json``."""


def run(
    runs: SpanRuns,
    span: Span,
    log: IO[bytes],
    *,
    to_node: str | None = None,
    command: str = "",
    require_blessing: bool = False,
) -> Line:
    """Runs the pipeline for a span.

    Args:
        command: the command line that runs this span alone, without secrets.
    """
    started = time.monotonic()
    state = RunState(nodes.of(runs.settings))
    try:
        with log:
            outcome = runs.run(span, log, state.apply, to_node=to_node, command=command)
    except UserError as error:  # nothing has started
        outcome = Outcome("failed", str(error))
    seconds = time.monotonic() - started
    problem = run_result.failure(state, outcome, require_blessing, command)
    read = {"span": span.number, "name": span.name, "version": span.version}
    whole = run_result.as_json(runs.of(span), state, outcome, seconds, runs.output, problem)
    text = f"{span.name}: {problem or _result(outcome)} ({duration(seconds)})"
    return Line(text, outcome, problem, {"span": read, **whole})


def _result(outcome: Outcome) -> str:
    """The first metric, and whether the model was blessed and pushed."""
    report = outcome.report
    if not report.get("metrics"):
        return "done"
    monitor = report.get("monitor", ACCURACY)
    value = report["metrics"].get(monitor)
    shown = "" if value is None else f"{monitor} {number(value)}, "
    if not report["blessed"]:
        because = "; ".join(report.get("not_blessed_because", ()))
        return f"{shown}not blessed{f': {because}' if because else ''}"
    pushed = report.get("pushed")
    version = pathlib.Path(pushed).name if pushed else ""
    return f"{shown}blessed, {f'pushed as version {version}' if pushed else 'not pushed'}"
