"""The only file that prints."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stagecraft.pipeline.cli.state import NOTICES, RunState
from stagecraft.pipeline.cli.wording import progress_text
from stagecraft.pipeline.local.events import Event

_COLOURS = {
    "waiting": "dim",
    "running": "bold cyan",
    "done": "green",
    "cached": "blue",
    "skipped": "dim",
    "failed": "bold red",
    "interrupted": "yellow",
}

_STARTING = "starting: importing TensorFlow and TFX takes 10 to 20 seconds"

_UNEVENTFUL = ("done", "cached", "skipped", "waiting")

_OTHER_LINES = 5
"""Of a live table: the header, a bar, words on progress, a notice, and the cursor's."""

_BELOW: dict[str, Any] = {
    "initial_indent": "    ",
    "subsequent_indent": "    ",
    "break_long_words": False,
    "break_on_hyphens": False,
}
"""Cells below a line of a table."""

_LINE_SECONDS = 10.0
"""Without a terminal, progress is told this often."""


def say(text: str, *, stderr: bool = False) -> None:
    """Prints a paragraph, or lines, as they are."""
    print(text, file=sys.stderr if stderr else sys.stdout, flush=True)


def error(text: str) -> None:
    """Prints what went wrong, on stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("Error: ", "bold red"), text))


def say_json(value: dict[str, Any]) -> None:
    """Prints one object on one line; NaN and infinities, which JSON lacks, become null."""
    say(json.dumps(_finite(value), allow_nan=False))


def rows(lines: list[tuple[str, str]], *, stderr: bool = False) -> None:
    """Prints names and values in two columns; long values (paths) are not cut."""
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        say(f"{name:<{width}}  {value}", stderr=stderr)


def columns(
    header: tuple[str, ...], lines: Sequence[tuple[str, ...]], *, folded: bool = False
) -> None:
    """Prints a table, as wide as what is in it.

    Args:
        header: of the columns.
        lines: as many cells each.
        folded: on a terminal, the last column is below the others, indented, not beside them.
    """
    folded = folded and sys.stdout.isatty()
    table = [line[:-1] if folded else line for line in (header, *lines)]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for line, whole in zip(table, (header, *lines), strict=True):
        cells = (set_cell_size(cell, width) for cell, width in zip(line, widths, strict=True))
        say("  ".join(cells).rstrip())
        if folded and whole[-1]:
            width = max(shutil.get_terminal_size().columns, 40)
            say(textwrap.fill(whole[-1], width, **_BELOW))


@contextlib.contextmanager
def following(
    state: RunState, *, stderr: bool, starts: bool = False
) -> Iterator[Callable[[Event], None]]:
    """Shows a run: a live table on a terminal, elsewhere a line per event.

    Args:
        state: of the run.
        stderr: where it is shown.
        starts: whether it is still to start, which takes a while.

    Yields:
        What is to be called with each event, after ``state`` has taken it in.
    """
    console = Console(stderr=stderr)
    if not console.is_terminal:
        if starts:
            say(_STARTING, stderr=stderr)
        yield _Lines(stderr).show
        return
    with Live(
        get_renderable=lambda: _table(state, console.height), console=console, refresh_per_second=4
    ) as live:
        yield lambda event: None
        live.refresh()


@contextlib.contextmanager
def progress(what: str, *, stderr: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal while something takes its time; gone when it is over.

    Yields:
        What is to be called with how much is done, and of how much.
    """
    console = Console(stderr=stderr)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with Progress(console=console, transient=True) as bar:
        task = None

        def show(done: int, total: int) -> None:
            nonlocal task
            if task is None:
                task = bar.add_task(what, total=total)
            bar.update(task, completed=done)

        yield show


class _Lines:
    def __init__(self, stderr: bool):
        self._stderr = stderr
        self._told: float = -math.inf

    def show(self, event: Event) -> None:
        if event["kind"] == "pipeline":
            say(f"{event['name']}: run {event['run_id']}", stderr=self._stderr)
        elif event["kind"] == "note":
            say(f"note: {event['text']}", stderr=self._stderr)
        elif event["kind"] == "node" and event["state"] == "running":
            self._told = time.monotonic()
            say(f"{event['node']}: running", stderr=self._stderr)
        elif event["kind"] == "node":
            figure = f" ({event['figure']})" if event.get("figure") else ""
            took = f"{event['seconds']:.1f} s"
            say(f"{event['node']}: {event['state']}, {took}{figure}", stderr=self._stderr)
        elif event["kind"] == "progress" and (
            event.get("phase") in NOTICES or time.monotonic() - self._told >= _LINE_SECONDS
        ):
            self._told = time.monotonic()
            say(f"  {progress_text(event)}", stderr=self._stderr)


def _table(state: RunState, height: int) -> RenderableType:
    """All nodes; where they are more than the terminal has lines, only those that matter now."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("component")
    table.add_column("state", min_width=11)
    table.add_column("seconds", justify="right")
    table.add_column("")
    folded = len(state.nodes) + _OTHER_LINES > height
    for name, node in state.nodes.items():
        if folded and node.state in _UNEVENTFUL:
            continue
        seconds = node.seconds_so_far
        table.add_row(
            Text(name, style="dim" if node.state in ("waiting", "skipped") else ""),
            Text(node.state, style=_COLOURS[node.state]),
            "" if seconds is None else f"{seconds:.1f}",
            Text(node.figure),
        )
    if folded:
        counts = collections.Counter(node.state for node in state.nodes.values())
        for state_name in _UNEVENTFUL:
            if counts[state_name]:
                text = Text(f"({counts[state_name]} components)", style="dim")
                table.add_row(text, Text(state_name, style=_COLOURS[state_name]))
    return Group(table, *(Text(f"note: {note}") for note in state.notes), _below(state))


def _below(state: RunState) -> RenderableType:
    if state.progress is None:
        return Text("" if state.run_id else _STARTING, style="dim")
    total = state.progress.get("total")
    done = state.progress.get("done", state.progress.get("step"))
    text = Text(progress_text(state.progress))
    lines: list[RenderableType] = [text]
    if total and done is not None:
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=total, completed=done, width=40), text)
        lines = [row]
    if state.notice and state.notice is not state.progress:
        lines.append(Text(progress_text(state.notice), style="dim"))
    return Group(*lines)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
