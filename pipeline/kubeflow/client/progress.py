"""The progress of a run's steps, from Argo's nodes."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from stagecraft.pipeline.kubeflow.client.objects import Run

_STATES = {
    "PENDING": "running",
    "RUNNING": "running",
    "PAUSED": "running",
    "SUCCEEDED": "done",
    "SKIPPED": "skipped",
    "FAILED": "failed",
    "CANCELING": "interrupted",
    "CANCELED": "interrupted",
}

DRIVER = "-driver"
"""Suffix of the node that resolves a step's inputs and its cache: argocompiler/dag.go."""

EXECUTOR = "executor"
"""Name of the node, below a step's, whose pod runs the container: argocompiler/container.go."""

DRIVER_FAILED = "its driver failed"
"""Cause of a failure, as far as Kubeflow Pipelines gives it; the driver's log says more."""

_NO_POD_SECONDS = 2.0
"""No pod starts and ends in this time; Argo's times are whole seconds."""


class Progress(NamedTuple):
    """Progress of one step."""

    state: str
    """waiting, running, done, cached, skipped, failed or interrupted."""

    seconds: float | None = None
    """Run time so far; None: not started."""

    cause: str | None = None


def progress(run: Run, names: list[str], now: datetime.datetime) -> dict[str, Progress]:
    """Progress of all steps, by name."""
    nodes = {node.display_name: node for node in run.tasks}
    without_pod = [
        node.start_time
        for node in run.tasks
        if node.display_name == EXECUTOR and node.state == "SKIPPED" and node.start_time
    ]
    result = {}
    for name in names:
        node, driver = nodes.get(name), nodes.get(name + DRIVER)
        if node is not None and node.state:
            found = _of_node(node, without_pod, now)
        elif driver is not None and _STATES.get(driver.state) in ("failed", "interrupted"):
            cause = _message(driver) or DRIVER_FAILED
            found = Progress(_STATES[driver.state], _seconds(driver, now), cause)
        elif driver is not None and driver.state:  # Argo's Omitted comes without a state
            found = Progress("running", _seconds(driver, now))
        else:
            found = Progress("waiting")
        if run.is_over and found.state == "waiting":
            found = Progress("skipped")
        elif run.is_over and found.state == "running":
            found = found._replace(state="interrupted")
        elif found.state == "failed" and node is not None and _was_stopped(node, run):
            found = found._replace(state="interrupted", cause=None)
        result[name] = found
    return result


def _was_stopped(node: Any, run: Run) -> bool:
    """Whether a node ended because a user stopped the run; Argo reports it as failed."""
    return run.stopped_at is not None and node.end_time >= run.stopped_at


def _of_node(node: Any, without_pod: list[datetime.datetime], now: datetime.datetime) -> Progress:
    state, seconds = _STATES.get(node.state, "waiting"), _seconds(node, now)
    # The server reports neither the step of an executor nor the use of the cache.
    if (
        state == "done"
        and (seconds or 0.0) <= _NO_POD_SECONDS
        and any(node.start_time <= when <= node.end_time for when in without_pod)
    ):
        state = "cached"
    return Progress(
        state,
        None if state in ("waiting", "skipped") else seconds,
        _message(node) if state == "failed" else None,
    )


def _seconds(node: Any, now: datetime.datetime) -> float | None:
    if node.start_time is None or node.start_time.year <= 1970:
        return None
    over = node.end_time is not None and node.end_time.year > 1970
    return max(0.0, ((node.end_time if over else now) - node.start_time).total_seconds())


def _message(node: Any) -> str | None:
    return node.error.message if node.error and node.error.message else None
