"""Logs of a run's steps, from its pods: Kubeflow Pipelines' API has no call for logs."""

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
"""Label of each pod of a run: ``LabelKeyWorkflowRunId`` in backend/src/common/util/consts.go."""

_NODE_NAME = "workflows.argoproj.io/node-name"
"""Annotation: the path of the pod's node, as ``quickstart-x7k2p.root.Trainer.executor(1)``."""

_CONTAINER = "main"


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
        step: only this step; a name with ``-driver`` at the end is a driver.
        tail: last lines of each pod's log; default: all.
        on_waiting: called with a step and the reason why its container does not start.
    """
    client, namespace = connect(api.connection.context.kube_context), api.pods_namespace
    reported: set[tuple[str, str]] = set()

    def present() -> list[Pod]:
        wanted = [
            pod
            for pod in pod_logs.pods(client, namespace, f"{_RUN_LABEL}={run.id}")
            if _is_wanted(pod, step)
        ]
        for pod in wanted:
            if pod.waiting and (pod.name, pod.waiting) not in reported:
                reported.add((pod.name, pod.waiting))
                on_waiting(name_of(pod), pod.waiting)
        return wanted

    patience = Patience(on_hiccup)

    def state() -> tuple[list[Pod], bool]:
        # The run first: after its end, no pod can start between the two requests.
        over = patience.ask(lambda: runs.get(api, run.id)).is_over
        return patience.ask(present), not over

    if follow:
        seen = False
        for pod, line in pod_logs.merged(client, namespace, state, container=_CONTAINER, tail=tail):
            seen = True
            yield name_of(pod), line
        if not seen and not present():
            raise _no_pods(run, step, namespace)
        return
    pods = present()
    if not pods:
        raise _no_pods(run, step, namespace)
    for pod in pods:
        try:
            for line in pod_logs.lines(
                client, namespace, pod.name, container=_CONTAINER, tail=tail
            ):
                yield name_of(pod), line
        except Refused as error:
            if error.status not in (400, 404):  # has not started; is gone
                raise
            on_waiting(name_of(pod), str(error))


def name_of(pod: Pod) -> str:
    """Name of a pod's step; a driver's pod has the driver's name."""
    path = [
        re.sub(r"\(.*\)$", "", part)  # attempt or iteration
        for part in pod.annotations.get(_NODE_NAME, pod.name).split(".")
    ]
    return path[-2] if path[-1] == EXECUTOR and len(path) > 1 else path[-1]


def _is_wanted(pod: Pod, step: str | None) -> bool:
    name = name_of(pod)
    if step is not None:
        # If the driver failed, the step has no other log.
        return name == step or (name == step + DRIVER and pod.phase == "Failed")
    return not name.endswith(DRIVER) or pod.phase == "Failed"


def _no_pods(run: Run, step: str | None, namespace: str) -> UserError:
    whose = f"step {step} of run {run.id}" if step else f"run {run.id}"
    return UserError(
        f"{whose}: no pods in namespace {namespace}. Cached and waiting steps have no pods, and "
        "the cluster deletes the pods of a finished run after some time. The user interface may "
        "still have their logs; --namespace selects another namespace.",
        setting="--namespace",
        value=namespace,
    )
