"""``stagecraft watch``."""

from __future__ import annotations

import pathlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import click

from stagecraft.common.errors import SettingError
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.components.example_gen.spans import Span
    from stagecraft.pipeline.local.span_runs import SpanRuns
    from stagecraft.pipeline.settings import PipelineSettings


@click.command(cls=Command, quiet=False, short_help="Wait for new spans of data, and run each.")
@options.settings_options
@options.data_option
@options.output_option
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks at the folder.",
)
@click.option(
    "--until",
    metavar="SPAN",
    help="End after the run of this span, a number or a date. Default: wait for ever.",
)
def watch(
    config: str,
    overrides: tuple[str, ...],
    data: str | None,
    output: pathlib.Path | None,
    every: float,
    until: str | None,
) -> int:
    """Wait for a new span of data, run the pipeline for it, and wait for the next one.

    data.source is a pattern such as data/span-{SPAN} or data/{YYYY}-{MM}-{DD}. The command looks at
    the folder every --every seconds. A span counts as complete when two looks in a row find the
    same files, so copy slowly written data to another name, and rename it at the end.

    If no span has a complete run, the command runs the newest one. Otherwise, also after a pause,
    it runs all spans in order that are newer than the newest one with a complete run. With
    data.window, it first reads and checks the older spans of the window that have not been read.
    Then it waits, and runs each new span. It runs the newest span again if its files, the schema
    file or your code change. It reads new versions of the window's older spans for the next run.

    One run goes on at a time. If another command uses the output folder, this one waits. If a run
    fails, the command goes on with the next span. It tries the failed one again when its files, the
    schema file or your code change. data.span in the settings does not matter.

    Ctrl-C or SIGTERM stops a current run as in 'stagecraft run', and ends the command.

    \b
    stagecraft watch --config mine.yaml
    stagecraft watch --set data.source='data/{YYYY}-{MM}-{DD}' --set data.window=7 --every 600

    Exit code: 0 after a signal, or after the span of --until; 1 if the data have no spans.
    """
    from stagecraft.components.example_gen import spans  # --help needs none of it
    from stagecraft.pipeline.checks import early_checks
    from stagecraft.pipeline.local.interrupt import taken
    from stagecraft.pipeline.local.span_runs import SpanRuns

    # A fixed span may not exist; the checks look at the newest one.
    settings = options.load_settings(config, (*overrides, "data.span=latest"), data)
    runs = SpanRuns(settings, output or pathlib.Path("runs") / settings.name)
    runs.check()
    settings.beam.check_files()
    early_checks.check_files(settings)
    _why_in_use(settings, runs.output)
    last = spans.number_of(until, "--until") if until else None
    if until and last is None:
        raise SettingError("--until", until, "names no span", "a number, or a date")
    console.fields([("output", str(runs.output)), ("spans", settings.data.source)])
    stop = threading.Event()
    with taken(lambda *_: stop.set(), signal.SIGINT, signal.SIGTERM):
        given = {"config": config, "overrides": overrides, "data": data, "output": output}
        _Follower(runs, given).follow(stop, every, last)
        console.say("stopped" if stop.is_set() else f"done: --until {until}")
    return 0


def _why_in_use(settings: PipelineSettings, output: pathlib.Path) -> str | None:
    """Why the command must wait for another one; None: the output folder is free.

    Raises:
        UserError: the folder stays unusable, such as that of another pipeline.
    """
    from stagecraft.components.metadata.file import MetadataFileError
    from stagecraft.pipeline.cli.commands.run import check_output
    from stagecraft.pipeline.local import lock

    try:
        check_output(settings, output)
    except lock.InUseError as error:
        return str(error)
    except MetadataFileError as error:
        if error.problem != "locked":
            raise
        return str(error)
    return None


class _Follower:
    """Runs the spans that are due, and says what happens."""

    def __init__(self, runs: SpanRuns, given: dict[str, Any]):
        """``given``: options of the command that a run of a span has, too."""
        from stagecraft.pipeline.local.span_runs import SpanWatch

        self._runs, self._given, self._watch = runs, given, SpanWatch(runs)
        self._said = ""

    def follow(self, stop: threading.Event, every: float, last: int | None) -> None:
        """Runs spans until a signal or the end of the run for the span ``last``."""
        while not stop.is_set():
            for span, whole in self._watch.due():
                if stop.is_set() or not self._run(span, whole=whole):
                    break
                if whole and last is not None and span.number >= last:
                    return
            if self._watch.has_ended(last):
                return
            stop.wait(every)

    def _run(self, span: Span, *, whole: bool) -> bool:
        """Runs a span; returns whether the command goes on with the next one at once."""
        from stagecraft.pipeline.cli.commands.run import run_command
        from stagecraft.pipeline.cli.terminal import span_lines
        from stagecraft.pipeline.local.span_runs import GATE
        from stagecraft.pipeline.local.supervisor import open_log

        if why := _why_in_use(self._runs.settings, self._runs.output):
            return self._wait(span, why)
        overrides = (*self._given["overrides"], f"data.span={span.name}")
        to_node = None if whole else GATE
        command = run_command(**self._given | {"overrides": overrides, "to_node": to_node})
        log = open_log(self._runs.output)
        line = span_lines.run(self._runs, span, log, to_node=to_node, command=command)
        if line.outcome.status == "in use":  # another command was faster
            return self._wait(span, line.problem or "")
        self._said = ""
        console.say(line.text if whole else f"{line.text}, for the window")
        if line.outcome.status == "interrupted":
            signal.raise_signal(line.outcome.signal)
            return False
        if line.problem is not None:
            console.say(f"log: {log.name}")
        self._watch.ended(span, whole=whole)
        return True

    def _wait(self, span: Span, why: str) -> bool:
        if self._said != why:
            console.say(f"{span.name}: waiting: {why}")
        self._said = why
        return False
