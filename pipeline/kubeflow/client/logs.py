"""Logs of a run's steps: from its pods, since Kubeflow Pipelines' API has no call for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from stagecraft.components.kubernetes.api import pod_logs
from stagecraft.components.kubernetes.api.connection import Refused, connect
from stagecraft.components.kubernetes.api.pod_logs import Pod
from stagecraft.pipeline.kubeflow.client import runs
from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.follow import Patience
from stagecraft.pipeline.kubeflow.client.objects import Run
from stagecraft.pipeline.kubeflow.client.progress import DRIVER, EXECUTOR
from stagecraft.schemas.errors import UserError

_RUN_LABEL = "pipeline/runid"
"""Of each pod of a run: ``LabelKeyWorkflowRunId`` in backend/src/common/util/consts.go."""

_NODE_NAME = "workflows.argoproj.io/node-name"
"""Annotation: the path of the pod's node, as ``quickstart-x7k2p.root.Trainer.executor(1)``."""

_CONTAINER = "main"
"""Argo's name for the container that does the work."""


def read(
    api: Api,
    run: Run,
    step: str | None,
    *,
    follow: bool,
    tail: int | None,
    on_waiting: Callable[[str, str], None],
    on_hiccup: Callable[[str], None],
) -> Iterator[tuple[str, str]]:
    """Lines of a run's steps, each with the step's name.

    Args:
        api: the connection.
        run: whose logs.
        step: of this one alone; a driver's, if its name ends with ``-driver``.
        follow: goes on until the run is over.
        tail: how many lines of each pod's log, from its end; default: all.
        on_waiting: called with a step and why its container does not begin.
        on_hiccup: called with an error that is not given up for, while following.

    Raises:
        UserError: it is not allowed; there is no such step, or no pod any more.
    """
    client, namespace = connect(api.connection.context.kube_context), api.pods_namespace
    told: set[tuple[str, str]] = set()

    def present() -> list[Pod]:
        found = [
            pod
            for pod in pod_logs.pods(client, namespace, f"{_RUN_LABEL}={run.id}")
            if _is_wanted(pod, step)
        ]
        for pod in found:
            if pod.waiting and (pod.name, pod.waiting) not in told:
                told.add((pod.name, pod.waiting))
                on_waiting(name_of(pod), pod.waiting)
        return found

    patience = Patience(on_hiccup)

    def state() -> tuple[list[Pod], bool]:
        # The run first: no pod comes between this and the next.
        over = patience.ask(lambda: runs.get(api, run.id)).is_over
        return patience.ask(present), not over

    if follow:
        seen = False
        for pod, line in pod_logs.merged(client, namespace, state, container=_CONTAINER, tail=tail):
            seen = True
            yield name_of(pod), line
        if not seen and not present():
            raise _nothing(run, step, namespace)
        return
    found = present()
    if not found:
        raise _nothing(run, step, namespace)
    for pod in found:
        try:
            for line in pod_logs.lines(
                client, namespace, pod.name, container=_CONTAINER, tail=tail
            ):
                yield name_of(pod), line
        except Refused as error:
            if error.status not in (400, 404):  # has not begun; is gone
                raise
            on_waiting(name_of(pod), str(error))


def name_of(pod: Pod) -> str:
    """The step that a pod belongs to; a driver's pod has the driver's name."""
    path = [
        re.sub(r"\(.*\)$", "", part)  # which attempt, or which iteration
        for part in pod.annotations.get(_NODE_NAME, pod.name).split(".")
    ]
    return path[-2] if path[-1] == EXECUTOR and len(path) > 1 else path[-1]


def _is_wanted(pod: Pod, step: str | None) -> bool:
    name = name_of(pod)
    if step is not None:
        # A step whose driver failed has nothing else to tell.
        return name == step or (name == step + DRIVER and pod.phase == "Failed")
    return not name.endswith(DRIVER) or pod.phase == "Failed"


def _nothing(run: Run, step: str | None, namespace: str) -> UserError:
    whose = f"step {step} of run {run.id}" if step else f"run {run.id}"
    return UserError(
        f"{whose}: no pods in namespace {namespace}. A cached step has none; a step that waits has "
        "none yet; those of a run that is over are deleted after a time. The user interface "
        "may have their logs still; --namespace names another namespace."
    )
