"""Runs a span, and describes the run in one line; describes the window of a run."""

from __future__ import annotations

import itertools
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.common.text import duration
from stagecraft.components.evaluator.evaluation import ACCURACY, number
from stagecraft.components.example_gen import spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.spans import Span
from stagecraft.pipeline.cli.terminal import run_result
from stagecraft.pipeline.cli.terminal.run_view import RunState
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


def window(
    runs: SpanRuns, read: Sequence[Mapping[str, int | str]], command: Callable[[str], str]
) -> str:
    """The spans of the window of a run, and how to read those that are missing.

    Args:
        read: results of :func:`spans.told`, the newest last.
        command: makes the command line that reads a range of spans.
    """
    size = runs.settings.data.window
    is_local = not files.is_remote(runs.settings.data.source)
    if there := runs.every() if is_local else []:  # nothing is missing before the first span
        size = max(1, min(size, int(read[-1]["span"]) - there[0].number + 1))
    found = spans.window(read, size)
    readable = runs.readable(found.missing) if is_local else []
    if not readable:
        return found.words()
    # Up to the next span that does not exist or was refused: the command would stop there.
    later = found.missing[found.missing.index(readable[0]) :]
    these = [*itertools.takewhile(readable.__contains__, later)]
    return f"{found.words()}; to read more: {command(span_range(these[0], these[-1]))}"


def span_range(first: str, last: str) -> str:
    """The value of ``--spans``."""
    return first if first == last else f"{first}:{last}"


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
