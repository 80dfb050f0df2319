"""Why a step does not start, and why it failed: what the state of a run does not say.

The state of pods comes from the Kubernetes API, if kubectl's configuration reaches the cluster;
otherwise from the user interface of Kubeflow Pipelines, if it serves the endpoint; otherwise from
the messages in Argo's workflow. Nothing here is required to watch a run.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api import pod_status
from stagecraft.components.kubernetes.api.connection import connect
from stagecraft.components.kubernetes.api.objects import Objects
from stagecraft.components.kubernetes.api.pod_status import Pod
from stagecraft.pipeline.kubeflow.client import logs, nodes as argo, runs
from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.errors import ApiError, NotFoundError
from stagecraft.pipeline.kubeflow.client.nodes import DRIVER, EXECUTOR, Progress
from stagecraft.pipeline.kubeflow.client.objects import Run

WITHOUT_CONTAINER_SECONDS = 60.0
"""A step whose container has not started after this time is reported."""

_LOOK_SECONDS = 15.0

_KILLED = "signal: killed"
"""In the end of the launcher's log, if the kernel killed the process that it started."""

_ADVICE = (
    (
        r"kfp-driver|kfp-launcher|argoexec",
        "let the nodes reach the registry of this image, which is part of Kubeflow Pipelines",
    ),
    (
        r"(?i)pull|InvalidImageName",
        "load the image on each node of the cluster, or push it to a registry and set "
        "kubeflow.image to its address there (docs/how-to/kubeflow.md)",
    ),
    (
        r"(?i)persistentvolumeclaim|volume",
        "create the claim, or change kubeflow.steps.{step}.volumes",
    ),
    (
        r"CreateContainerConfigError|(?i:secret)",
        "create the Secret in namespace {namespace}, or change kubeflow.steps.{step}.secrets",
    ),
    (
        r"(?i)schedul|nodes are available|insufficient",
        "add a node, or change cpu, memory, gpus, node_selector or tolerations in "
        "kubeflow.steps.{step}",
    ),
)
"""Reason why a container does not start -> advice."""


_NOT_STARTED = (
    "Argo has not started the run. To do: look at the log of its controller, "
    "deployment/workflow-controller."
)

_UNREADABLE = (
    "a container has not started, and the pods of the run cannot be read. To do: set "
    "--kube-context, to read them through the Kubernetes API, or look at them with kubectl."
)


class _Wait(NamedTuple):
    """A pod whose container does not start."""

    step: str
    reason: str
    pod: str


class IdleSteps:
    """Reports the steps of a run whose containers do not start."""

    def __init__(
        self,
        api: Api,
        names: list[str],
        report: Callable[[str, str], Any],
        monotonic: Callable[[], float] = time.monotonic,
    ):
        self._api, self._names, self._report, self._monotonic = api, names, report, monotonic
        self._since: dict[tuple[str, Any], float] = {}
        self._looked = float("-inf")
        self._reported: set[tuple[str, str]] = set()
        self._blind = 0  # looks, one after the other, that showed nothing

    def check(self, run: Run) -> None:
        """Looks at the pods if a node of the run has waited for a minute."""
        now = self._monotonic()
        self._since = {node: self._since.get(node, now) for node in _pending(run)}
        longest = now - min(self._since.values(), default=now)
        if not self._since or longest < WITHOUT_CONTAINER_SECONDS:
            return
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        waits = _waiting(self._api, run, self._names)
        self._blind = 0 if waits is not None else self._blind + 1
        for wait in waits or ():
            advice = _advice(wait, self._api.known_namespace or "NAMESPACE")
            reason = f"its container has not started: {wait.reason.rstrip('.')}. To do: {advice}."
            self._report_once(wait.step, reason)
        if self._blind > 1:  # one may come between two states of the run
            self._report_once(run.name, _UNREADABLE if run.tasks else _NOT_STARTED)

    def _report_once(self, name: str, reason: str) -> None:
        if (name, reason) not in self._reported:
            self._reported.add((name, reason))
            self._report(name, reason)


def _advice(wait: _Wait, namespace: str) -> str:
    for pattern, text in _ADVICE:
        if re.search(pattern, wait.reason):
            return text.format(step=wait.step.removesuffix(DRIVER), namespace=namespace)
    return f"kubectl -n {namespace} describe pod {wait.pod or 'POD'} shows more"


def explain(api: Api, run: Run, names: list[str]) -> dict[str, Progress]:
    """Progress of all steps, with causes of failures: the driver's last line, a memory limit."""
    steps = argo.progress(run, names)
    failed = [name for name, step in steps.items() if step.state == "failed"]
    if not failed:
        return steps
    pods, reader = _pods(api, run, failed), logs.Reader(api, run)
    messages = {wait.step: wait.reason for wait in _messages(api, run, "Failed", "Error")}

    def last_lines(name: str) -> list[str]:
        text = ""
        for node in argo.nodes(run, names):
            if node.step == name:
                with contextlib.suppress(UserError):
                    text = reader.text(node) or text
        return [line for line in text.split("\n") if line.strip()][-5:]

    def cause(name: str) -> str | None:
        if steps[name].cause == argo.DRIVER_FAILED:
            [*_, last] = last_lines(name + DRIVER) or [""]
            return f"{argo.DRIVER_FAILED}: {last.strip()}" if last else None
        for pod in reversed(pods):
            if argo.step_of_pod(pod) == name and pod.phase == "Failed" and pod.reason:
                if pod.reason.startswith(pod_status.OUT_OF_MEMORY):
                    return _out_of_memory(name, pod.memory_limit)
                return pod.reason
        if pod_status.OUT_OF_MEMORY in (steps[name].cause or messages.get(name, "")):
            return _out_of_memory(name, _memory_limit(api, run, name))
        if steps[name].cause is None and _KILLED in "\n".join(last_lines(name)):
            return _killed(name, _memory_limit(api, run, name))
        return None

    return steps | {
        name: steps[name]._replace(cause=found) for name in failed if (found := cause(name))
    }


def _out_of_memory(name: str, limit: str) -> str:
    of = f" of {limit}" if limit else ""
    return (
        f"{pod_status.OUT_OF_MEMORY}: it exceeded its memory limit{of}; raise "
        f"kubeflow.steps.{name}.memory"
    )


def _killed(name: str, limit: str) -> str:
    if limit:
        return (
            f"it was killed, most likely because it exceeded its memory limit of {limit}; raise "
            f"kubeflow.steps.{name}.memory"
        )
    return (
        "it was killed, most likely because the memory of its node, or the default limit of its "
        f"namespace, was exhausted; set kubeflow.steps.{name}.memory"
    )


def _memory_limit(api: Api, run: Run, name: str) -> str:
    """The limit in the compiled file; empty: it has none."""
    step = None
    with contextlib.suppress(UserError):
        document = runs.document_of(api, run)
        step = document.steps().get(name) if document else None
    resources = ((step.container if step else None) or {}).get("resources", {})
    if text := resources.get("resourceMemoryLimit"):
        return str(text)
    return f"{resources['memoryLimit']:g}G" if resources.get("memoryLimit") else ""


def _pending(run: Run) -> Iterator[tuple[str, Any]]:
    """Name and start of the nodes whose containers should start; of the run, if it has no node."""
    pods = [task for task in run.tasks if _has_pod(task.display_name or "")]
    if not pods:
        yield run.name, None
    for task in pods:
        if task.state == "PENDING":
            yield task.display_name, task.start_time


def _has_pod(name: str) -> bool:
    name = re.sub(r"\(\d+\)$", "", name)
    return name == EXECUTOR or name.endswith(DRIVER)


def _waiting(api: Api, run: Run, names: list[str]) -> list[_Wait] | None:
    """Pods of a run whose containers do not start; None: nothing is known of its pods."""
    pods = _pods(api, run, names)
    if not pods:
        return [*_messages(api, run, "Pending")] or None
    now = datetime.datetime.now(datetime.timezone.utc)
    return [
        _Wait(
            argo.step_of_pod(pod),
            pod.waiting
            or pod.unscheduled
            or _last_event(api, pod)
            or "the cluster gives no reason",
            pod.name,
        )
        for pod in pods
        if (pod.phase == "Pending" or pod.waiting)
        and (now - pod.created).total_seconds() >= WITHOUT_CONTAINER_SECONDS
    ]


def _pods(api: Api, run: Run, names: list[str]) -> list[Pod]:
    """Pods of a run and of these steps, as far as they can be read."""
    with contextlib.suppress(UserError):
        client = connect(api.connection.context.kube_context)
        if pods := pod_status.pods(client, api.pods_namespace, f"{logs.RUN_LABEL}={run.id}"):
            return pods
    found = []
    for node in argo.nodes(run, names):
        for name in node.pods:
            try:
                # The user interface serves the manifests of pods.
                text = api.text("/k8s/pod", podname=name, podnamespace=api.known_namespace)
                found.append(pod_status.pod_of(json.loads(text)))
                break
            except NotFoundError:  # the endpoint is not the user interface
                return found
            except (ApiError, ValueError, KeyError, TypeError):  # refused, or not a manifest
                continue
    return found


def _last_event(api: Api, pod: Pod) -> str:
    with contextlib.suppress(UserError):
        objects = Objects(connect(api.connection.context.kube_context), api.pods_namespace)
        for _, message in reversed(objects.warnings(pod.name, pod.created)):
            return message
    return ""


def _messages(api: Api, run: Run, *phases: str) -> Iterator[_Wait]:
    """Messages of the pods in Argo's workflow, which the older API has."""
    with contextlib.suppress(UserError, ValueError, KeyError, TypeError, AttributeError):
        answer = json.loads(api.text(f"/apis/v1beta1/runs/{run.id}"))
        workflow = json.loads(answer["pipeline_runtime"]["workflow_manifest"])
        for node in workflow["status"]["nodes"].values():
            is_usual = node.get("message") in (None, "", *pod_status.USUAL_WAITS)
            if node.get("type") == "Pod" and node.get("phase") in phases and not is_usual:
                yield _Wait(argo.step_of(node["name"]), str(node["message"]), "")
