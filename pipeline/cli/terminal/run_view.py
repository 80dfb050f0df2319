"""The state of a run, built from its events, and views of it.

A terminal shows a live table; elsewhere, each event is a line.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stagecraft.pipeline.cli.terminal.console import cell, say
from stagecraft.pipeline.cli.terminal.wording import progress_text
from stagecraft.pipeline.local.protocol import Event

NOTICES = ("restart", "resume", "precision", "export", "wait", "network", "weights")
"""Phases of progress that happen once; views show them at once and keep them."""


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
"""Lines of a live table other than the nodes: header, bar, progress, notice, cursor."""

_LINE_SECONDS = 10.0
"""Least time between two lines of progress, where there is no terminal."""


@dataclasses.dataclass
class NodeState:
    """One line of the table."""

    state: str = "waiting"
    """waiting, running, done, cached, skipped, failed or interrupted."""

    seconds: float | None = None
    figure: str = ""
    cause: str | None = None
    started: float | None = None
    """``time.monotonic()`` when it began."""

    @property
    def seconds_so_far(self) -> float | None:
        """Seconds that it took, or has taken so far."""
        if self.seconds is None and self.started is not None:
            return time.monotonic() - self.started
        return self.seconds


class RunState:
    """The states of all nodes, and the latest progress."""

    def __init__(self, nodes: Iterable[str]):
        self._created = time.monotonic()
        self.nodes = {node: NodeState() for node in nodes}
        self.run_id: str | None = None
        self.progress: Event | None = None
        self.notice: Event | None = None
        """The latest progress with a phase of ``NOTICES``."""
        self.notes: list[str] = []
        self.start_up_seconds: float | None = None

    def apply(self, event: Event) -> None:
        """Applies an event of :mod:`stagecraft.pipeline.local.protocol`."""
        if event["kind"] == "pipeline":
            self.run_id = event["run_id"]
            self.start_up_seconds = time.monotonic() - self._created
            skipped = event["skipped"]
            self.nodes = {
                node: NodeState("skipped" if node in skipped else "waiting")
                for node in event["nodes"]
            }
        elif event["kind"] == "node":
            self._apply_node(event)
        elif event["kind"] == "note":
            self.notes.append(event["text"])
        elif event["kind"] == "progress":
            self.progress = event
            if event.get("phase") in NOTICES:
                self.notice = event

    def _apply_node(self, event: Event) -> None:
        # A DAG of a compiled pipeline is shown only if it fails itself.
        node = self.nodes.setdefault(event["node"], NodeState())
        node.state = event["state"]
        node.seconds = event.get("seconds")
        node.figure = event.get("figure", "")
        node.cause = event.get("cause")
        if node.state == "running":
            node.started = time.monotonic() - event.get("elapsed", 0.0)
        else:
            self.progress = self.notice = None

    def stop(self, state: str) -> None:
        """Ends the run: running nodes become ``failed`` or ``interrupted``."""
        for node in self.nodes.values():
            if node.state == "running":
                node.seconds = round(node.seconds_so_far or 0.0, 2)
                node.state = state
        self.progress = None

    @property
    def failed(self) -> str | None:
        """The node that failed, if any."""
        return next((name for name, node in self.nodes.items() if node.state == "failed"), None)


@contextlib.contextmanager
def run_view(
    state: RunState, *, stderr: bool, starts: bool = False
) -> Iterator[Callable[[Event], None]]:
    """Shows a run.

    Args:
        starts: whether the run has yet to start, which takes a while.

    Yields:
        A function that takes an event, applies it to ``state`` and shows it.
    """
    console = Console(stderr=stderr)
    if not console.is_terminal:
        if starts:
            say(_STARTING, stderr=stderr)
        yield _Lines(state, stderr).show
        return
    with Live(
        get_renderable=lambda: _table(state, console.height), console=console, refresh_per_second=4
    ) as live:
        yield state.apply
        live.refresh()


@contextlib.contextmanager
def progress_bar(description: str, *, stderr: bool) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on a terminal until the block ends; yields a function of done and total units."""
    console = Console(stderr=stderr)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(description, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


class _Lines:
    def __init__(self, state: RunState, stderr: bool):
        self._state, self._stderr = state, stderr
        self._last: float = -math.inf

    def show(self, event: Event) -> None:
        self._state.apply(event)
        if event["kind"] == "pipeline":
            self._say(f"{event['name']}: run {event['run_id']}")
        elif event["kind"] == "note":
            self._say(f"note: {event['text']}")
        elif event["kind"] == "node" and event["state"] == "running":
            self._last = time.monotonic()
            self._say(f"{event['node']}: running")
        elif event["kind"] == "node":
            figure = f" ({event['figure']})" if event.get("figure") else ""
            self._say(f"{event['node']}: {event['state']}, {event['seconds']:.1f} s{figure}")
        elif event["kind"] == "progress" and (
            event.get("phase") in NOTICES or time.monotonic() - self._last >= _LINE_SECONDS
        ):
            self._last = time.monotonic()
            self._say(f"  {progress_text(event)}")

    def _say(self, text: str) -> None:
        say(text, stderr=self._stderr)


def _table(state: RunState, height: int) -> RenderableType:
    """All nodes; on a terminal with fewer lines, only those that matter now."""
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
            Text(cell(name), style="dim" if node.state in ("waiting", "skipped") else ""),
            Text(node.state, style=_COLOURS[node.state]),
            "" if seconds is None else f"{seconds:.1f}",
            Text(cell(node.figure)),
        )
    if folded:
        counts = collections.Counter(node.state for node in state.nodes.values())
        for state_name in _UNEVENTFUL:
            if counts[state_name]:
                text = Text(f"({counts[state_name]} components)", style="dim")
                table.add_row(text, Text(state_name, style=_COLOURS[state_name]))
    return Group(table, *(Text(cell(f"note: {note}")) for note in state.notes), _below(state))


def _below(state: RunState) -> RenderableType:
    if state.progress is None:
        return Text("" if state.run_id else _STARTING, style="dim")
    total = state.progress.get("total")
    done = state.progress.get("done", state.progress.get("step"))
    text = Text(cell(progress_text(state.progress)))
    lines: list[RenderableType] = [text]
    if total and done is not None:
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=total, completed=done, width=40), text)
        lines = [row]
    if state.notice and state.notice is not state.progress:
        lines.append(Text(cell(progress_text(state.notice)), style="dim"))
    return Group(*lines)
