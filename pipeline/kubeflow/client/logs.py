"""Logs of a run's steps.

Kubeflow Pipelines serves the log of a pod, and the log that Argo keeps in the object store when the
pod is gone. The Kubernetes API, with kubectl's configuration, can also follow a log; nothing else
needs it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from collections.abc import Callable, Iterator

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api import pod_logs
from stagecraft.components.kubernetes.api.connection import Refused, connect
from stagecraft.components.kubernetes.api.pod_logs import Pod
from stagecraft.pipeline.kubeflow.client import nodes as argo, runs
from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.errors import ApiError
from stagecraft.pipeline.kubeflow.client.nodes import DRIVER, Node
from stagecraft.pipeline.kubeflow.client.objects import Run
from stagecraft.pipeline.kubeflow.client.runs import Patience

RUN_LABEL = "pipeline/runid"
"""Label of each pod of a run: ``LabelKeyWorkflowRunId`` in backend/src/common/util/consts.go."""

_CONTAINER = "main"

_ROUTES: tuple[tuple[str, dict[str, str]], ...] = (
    ("/apis/v1alpha1/runs/{run}/nodes/{pod}/log", {}),  # apiserver/main.go
    ("/apis/v2beta1/runs/{run}/nodes/{pod}/log", {}),  # newer servers
    # The user interface, which does not forward the first: frontend/server/app.ts.
    ("/k8s/pod/logs", {"podname": "{pod}", "runid": "{run}", "podnamespace": "{namespace}"}),
)

_ARCHIVE = "/apis/v2beta1/runs/{run}/nodes/{node}/artifacts/main-logs:read"
"""The log as an artifact of Argo (archiveLogs in its workflow-controller-configmap)."""

_RETRIED = (None, 429, 502, 503, 504)
"""Statuses of a server that may answer later; 500 is the answer for a pod that is gone."""


class Reader:
    """Reads logs of a run's nodes through Kubeflow Pipelines."""

    def __init__(self, api: Api, run: Run):
        self.api, self.run = api, run
        self.has_read = self.missed = False  # whether there was a log, and whether one was missing
        self.refused: ApiError | None = None
        """Why the credentials do not permit to read logs."""
        self._first = 0  # the route that had an answer

    def text(self, node: Node) -> str | None:
        """The log of a node up to now; None: there is none.

        Raises:
            ApiError: the server does not answer.
        """
        text = self._of_pod(node)
        text = self._archived(node) if text is None else text
        self.has_read |= text is not None
        self.missed |= text is None
        return text

    def _of_pod(self, node: Node) -> str | None:
        routes = [*range(len(_ROUTES))]
        for route in [self._first, *(each for each in routes if each != self._first)]:
            path, query = _ROUTES[route]
            for pod in node.pods:
                names = {
                    "run": self.run.id,
                    "pod": pod,
                    "namespace": self.api.known_namespace,
                }
                text = self._get(
                    path.format(**names),
                    **{key: value.format(**names) for key, value in query.items()},
                )
                if text is not None and not _is_error(text):
                    self._first = route
                    return text
        return None

    def _archived(self, node: Node) -> str | None:
        text = self._get(_ARCHIVE.format(run=self.run.id, node=node.id))
        with contextlib.suppress(ValueError, KeyError, TypeError, binascii.Error):
            return base64.b64decode(json.loads(text or "")["data"]).decode(errors="replace")
        return None

    def _get(self, path: str, **query: str) -> str | None:
        try:
            return self.api.text(path, **query)
        except ApiError as error:
            if error.status in _RETRIED:
                raise
            if error.status == 403:
                self.refused = error
            return None


def _is_error(text: str) -> bool:
    """Whether an answer is an error: older servers send status 200 before they look for the pod."""
    with contextlib.suppress(ValueError):
        answer = json.loads(text)
        return isinstance(answer, dict) and {*answer} == {"error_message", "error_details"}
    return False


def read(
    api: Api,
    run: Run,
    names: list[str],
    step: str | None,
    *,
    follow: bool,
    tail: int | None,
    on_waiting: Callable[[str, str], None],
    on_hiccup: Callable[[str], None],
) -> Iterator[tuple[str, str]]:
    """Lines of a run's steps, each with the step's name.

    Args:
        names: of all steps, each after its dependencies.
        step: only this step; a name with ``-driver`` at the end is a driver.
        tail: last lines of each pod's log; default: all.
        on_waiting: called with a step and the reason why its container does not start.
    """

    reader = Reader(api, run)

    def pods_of_run() -> _Pods:
        return _Pods(api, run, step, tail, on_waiting, on_hiccup)

    if follow:
        cluster, seen = None, False
        with contextlib.suppress(UserError):  # it may be out of reach, refuse, or be another one
            pods = pods_of_run()
            if pods.present() or not _wanted(run, names, step):
                cluster = pods
        if cluster is not None:
            for entry in cluster.followed():
                seen = True
                yield entry
            if seen or cluster.present():
                return
        yield from _followed(reader, names, step, tail, on_hiccup)
    else:
        yield from _present(reader, names, step, tail)
    if reader.has_read and (run.is_over or not reader.missed):
        return
    try:
        pods = pods_of_run()
        present = pods.present()
    except UserError as error:
        if reader.has_read:
            return
        raise _no_logs(run, step, reader, api.pods_namespace, str(error)) from None
    if reader.has_read:
        return
    if not present:
        raise _no_logs(run, step, reader, api.pods_namespace)
    yield from pods.lines(present)


def _present(
    reader: Reader, names: list[str], step: str | None, tail: int | None
) -> Iterator[tuple[str, str]]:
    """Lines up to now, through Kubeflow Pipelines."""
    for node in _wanted(reader.run, names, step):
        lines = _lines(reader.text(node) or "")
        yield from ((node.step, line) for line in lines[_start(lines, tail) :])


def _followed(
    reader: Reader,
    names: list[str],
    step: str | None,
    tail: int | None,
    on_hiccup: Callable[[str], None],
) -> Iterator[tuple[str, str]]:
    """Lines as they are written, through Kubeflow Pipelines: it sends a log as a whole."""
    patience = Patience(on_hiccup)
    seen: dict[str, int] = {}
    ended: set[str] = set()
    while True:
        run = patience.ask(lambda: runs.get(reader.api, reader.run.id))
        states = {name: each.state for name, each in argo.progress(run, names).items()}
        for node in _wanted(run, names, step):
            if node.id in ended:
                continue
            text = patience.ask(lambda node=node: reader.text(node))  # type: ignore[misc]
            if states.get(node.step, "done") != "running":
                ended.add(node.id)
            elif text is not None:  # without a last line that is not complete yet
                text = text[: text.rfind("\n") + 1]
            if text is None:
                continue
            lines = _lines(text)
            begin = seen.get(node.id, _start(lines, tail))
            # A shorter log is a new file: the kubelet limits the size of a log.
            yield from ((node.step, line) for line in lines[begin if begin <= len(lines) else 0 :])
            seen[node.id] = len(lines)
        if run.is_over:
            return
        patience.pause()


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _start(lines: list[str], tail: int | None) -> int:
    return 0 if tail is None else max(0, len(lines) - tail)


def _wanted(run: Run, names: list[str], step: str | None) -> list[Node]:
    """Nodes whose logs a user wants; of drivers, only those that failed."""
    failed = {argo.step_of(task.display_name or "") for task in run.tasks if task.state == "FAILED"}
    return [
        node
        for node in argo.nodes(run, names)
        if node.step == step
        or (
            (step is None or node.step == step + DRIVER)
            and (not node.step.endswith(DRIVER) or node.step in failed)
        )
    ]


class _Pods:
    """Logs of a run's pods through the Kubernetes API."""

    def __init__(
        self,
        api: Api,
        run: Run,
        step: str | None,
        tail: int | None,
        on_waiting: Callable[[str, str], None],
        on_hiccup: Callable[[str], None],
    ):
        self._api, self._run, self._step, self._tail = api, run, step, tail
        self._on_waiting, self._patience = on_waiting, Patience(on_hiccup)
        self._client = connect(api.connection.context.kube_context)
        self._reported: set[tuple[str, str]] = set()

    def present(self) -> list[Pod]:
        """The pods that exist; calls ``on_waiting`` for those that wait."""
        wanted = [
            pod
            for pod in pod_logs.pods(
                self._client, self._api.pods_namespace, f"{RUN_LABEL}={self._run.id}"
            )
            if _is_wanted(pod, self._step)
        ]
        for pod in wanted:
            if pod.waiting and (pod.name, pod.waiting) not in self._reported:
                self._reported.add((pod.name, pod.waiting))
                self._on_waiting(argo.step_of_pod(pod), pod.waiting)
        return wanted

    def lines(self, pods: list[Pod]) -> Iterator[tuple[str, str]]:
        """Lines up to now."""
        for pod in pods:
            try:
                for line in pod_logs.lines(
                    self._client,
                    self._api.pods_namespace,
                    pod.name,
                    container=_CONTAINER,
                    tail=self._tail,
                ):
                    yield argo.step_of_pod(pod), line
            except Refused as error:
                if error.status not in (400, 404):  # has not started; is gone
                    raise
                self._on_waiting(argo.step_of_pod(pod), str(error))

    def followed(self) -> Iterator[tuple[str, str]]:
        """Lines as they are written, until the run is over."""

        def state() -> tuple[list[Pod], bool]:
            # The run first: after its end, no pod can start between the two requests.
            over = self._patience.ask(lambda: runs.get(self._api, self._run.id)).is_over
            return self._patience.ask(self.present), not over

        namespace, container = self._api.pods_namespace, _CONTAINER
        for pod, line in pod_logs.merged(
            self._client, namespace, state, container=container, tail=self._tail
        ):
            yield argo.step_of_pod(pod), line


def _is_wanted(pod: Pod, step: str | None) -> bool:
    name = argo.step_of_pod(pod)
    if step is not None:
        # If the driver failed, the step has no other log.
        return name == step or (name == step + DRIVER and pod.phase == "Failed")
    return not name.endswith(DRIVER) or pod.phase == "Failed"


def _no_logs(
    run: Run, step: str | None, reader: Reader, namespace: str, cluster: str = ""
) -> UserError:
    whose = f"step {step} of run {run.id}" if step else f"run {run.id}"
    has_none = f"{whose}: Kubeflow Pipelines has no log"
    if reader.refused is not None:
        has_none = f"{whose}: the log cannot be read ({str(reader.refused).rstrip('.')})"
    if cluster:
        return UserError(f"{has_none}, and the pods cannot be read. {cluster}")
    return UserError(
        f"{has_none}, and namespace {namespace} has no pods. Cached and waiting steps have no "
        "pods, and the cluster deletes the pods of a finished run after some time; --namespace "
        "selects another namespace.",
        setting="--namespace",
        value=namespace,
    )
