"""Argo's nodes of a run's steps, and the names of their pods.

Kubeflow Pipelines' API gives the IDs of nodes without saying which steps they belong to. An ID is
the hash of the path of its node: ``NodeID`` in workflow/util/util.go of Argo Workflows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from stagecraft.components.kubernetes.api.pod_status import Pod
from stagecraft.pipeline.kubeflow.client.objects import Run
from stagecraft.pipeline.kubeflow.client.progress import DRIVER, EXECUTOR

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


class Node(NamedTuple):
    """A node of Argo that has a pod."""

    step: str
    """Name of its step; the name of a driver ends with ``-driver``."""

    id: str

    pods: tuple[str, ...]
    """Possible names of its pod: ``GeneratePodName`` in workflow/util/pod_name.go of Argo."""


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
