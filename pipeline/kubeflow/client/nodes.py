"""Argo's nodes of a run: the progress of its steps, and the names of their pods.

Kubeflow Pipelines' API gives the IDs of nodes without saying which steps they belong to. An ID is
the hash of the path of its node: ``NodeID`` in workflow/util/util.go of Argo Workflows.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stagecraft.pipeline.kubeflow.client.objects import Run

if TYPE_CHECKING:
    from stagecraft.components.kubernetes.api.pod_status import Pod

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

_TEMPLATES = {
    EXECUTOR: ("system-container-impl", "retry-system-container-impl"),
    DRIVER: ("system-container-driver",),
}
"""Argo's templates of pods: argocompiler/container.go in kubeflow/pipelines."""

_NODE_NAME = "workflows.argoproj.io/node-name"
"""Annotation of a pod: the path of its node."""

_ROOT_TEMPLATES = ("system-dag-driver",)

_EXIT = ("onExit",)
"""Part of a path: Argo's node of an exit handler, ``GenerateOnExitNodeName`` in workflow/common."""


class Progress(NamedTuple):
    """Progress of one step."""

    state: str
    """waiting, running, done, cached, skipped, failed or interrupted."""

    seconds: float | None = None
    """Run time so far; None: not started."""

    cause: str | None = None


class Node(NamedTuple):
    """A node of Argo that has a pod."""

    step: str
    """Name of its step; the name of a driver ends with ``-driver``."""

    id: str

    pods: tuple[str, ...]
    """Possible names of its pod: ``GeneratePodName`` in workflow/util/pod_name.go of Argo."""


def progress(run: Run, names: list[str]) -> dict[str, Progress]:
    """Progress of all steps up to now, by name."""
    now = datetime.datetime.now(datetime.timezone.utc)
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


def nodes(run: Run, names: list[str]) -> list[Node]:
    """Nodes of the drivers and containers of a run's steps, in the order of ``names``."""
    known = {child.pod_name for task in run.tasks for child in task.child_tasks or ()}
    workflow = next((each.rpartition("-")[0] for each in known if each), "")

    def id_of(path: str) -> str:
        return f"{workflow}-{_fnv1a(path)}"

    def attempts(path: str) -> list[str]:
        """Paths of a node's attempts; of the node itself, if Argo does not retry it."""
        numbered = (f"{path}({number})" for number in itertools.count())
        return [*itertools.takewhile(lambda each: id_of(each) in known, numbered)] or [path]

    def below(path: str, *parts: str) -> Iterator[str]:
        for attempt in attempts(path):
            if parts:
                yield from below(f"{attempt}.{parts[0]}", *parts[1:])
            else:
                yield attempt

    displayed = {task.display_name or "" for task in run.tasks}
    dags = [name for name in displayed if f"{name}{DRIVER}" in displayed and name not in names]
    outer = [("root",), *(("root", dag) for dag in sorted(dags))]
    outer += [("root", name, *_EXIT) for name in (*sorted(dags), *names)]
    found = []
    for step, parts, templates in (
        (f"root{DRIVER}", (f"root{DRIVER}",), _ROOT_TEMPLATES),
        *(
            each
            for name in names
            for path in outer
            for each in (
                (f"{name}{DRIVER}", (*path, f"{name}{DRIVER}"), _TEMPLATES[DRIVER]),
                (name, (*path, name, EXECUTOR), _TEMPLATES[EXECUTOR]),
            )
        ),
    ):
        for path in below(workflow, *parts):
            if id_of(path) in known:
                pods = [f"{workflow}-{template}-{_fnv1a(path)}" for template in templates]
                found.append(Node(step, id_of(path), (*pods, id_of(path))))
    return found


def step_of(path: str) -> str:
    """Name of the step of a node's path, as ``quickstart-x7k2p.root.Trainer.executor(1)``."""
    parts = [re.sub(r"\(.*\)$", "", part) for part in path.split(".")]  # attempt or iteration
    return parts[-2] if parts[-1] == EXECUTOR and len(parts) > 1 else parts[-1]


def step_of_pod(pod: Pod) -> str:
    """Name of a pod's step; a driver's pod has the driver's name."""
    return step_of(pod.annotations.get(_NODE_NAME, pod.name))


def _fnv1a(text: str) -> int:
    """FNV-1a with 32 bits (http://www.isthe.com/chongo/tech/comp/fnv/)."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value
