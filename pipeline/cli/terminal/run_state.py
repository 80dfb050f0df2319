"""The state of a run, built from its events."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable

from stagecraft.pipeline.local.events import Event

NOTICES = ("restart", "resume", "precision", "export", "wait", "network", "weights")
"""Phases of progress that happen once; views show them at once and keep them."""


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
        """Applies an event of :mod:`stagecraft.pipeline.local.events`."""
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
