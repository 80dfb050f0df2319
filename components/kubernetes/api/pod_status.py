"""The state of pods, and a watch that sees the last state of deleted pods."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import kubernetes
import urllib3
from kubernetes.client import ApiException

from stagecraft.components.kubernetes.api.connection import call, explained, parse_time

Json = dict[str, Any]

REMEDY = (
    "Apply manifests/base/logs-access.yaml, which grants list on pods and get on pods/log. For a "
    "Trainer step, apply manifests/base/training-access.yaml, which grants all its permissions."
)

USUAL_WAITS = (None, "ContainerCreating", "PodInitializing")
"""The reasons for which a container waits although nothing is wrong."""

OUT_OF_MEMORY = "OOMKilled"
"""Reason of a container that the kernel killed because it exceeded its memory limit."""

_TERM_SECONDS = 240
"""How long one request watches. The server closes longer ones after five minutes or more."""


class Pod(NamedTuple):
    """A pod, without the fields that logs and reports do not need."""

    name: str
    phase: str  # Pending, Running, Succeeded, Failed or Unknown
    labels: dict[str, str]
    annotations: dict[str, str]
    created: datetime.datetime
    waiting: str | None  # why a container has not begun, such as ImagePullBackOff
    exit_code: int | None  # of its container; None: the container has not ended
    reason: str  # why it ended, in addition to the exit code, such as Evicted or OOMKilled
    uid: str  # differs from that of the next pod of the same name
    unscheduled: str = ""  # why it has no node
    disrupted: bool = False
    """Whether the cluster ended it: its node was drained, or another pod preempted it."""
    deleted: bool = False  # whether its deletion was requested
    memory_limit: str = ""  # of its container, such as 16Gi

    @property
    def is_over(self) -> bool:
        """Whether all its containers have ended."""
        return self.phase in ("Succeeded", "Failed")


def pods(client: kubernetes.client.ApiClient, namespace: str, selector: str) -> list[Pod]:
    """Pods with certain labels, the oldest first."""
    with explained(f"Pods of namespace {namespace} cannot be listed", REMEDY):
        answer = call(client, "GET", path(namespace), labelSelector=selector)
    return sorted(map(pod_of, answer["items"]), key=lambda pod: (pod.created, pod.name))


def path(namespace: str) -> str:
    """The path of a namespace's pods in the API."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod_of(manifest: Json) -> Pod:
    """The state in a pod's manifest."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    states = [each["state"] for each in status.get("containerStatuses") or () if each.get("state")]
    ended = next((state["terminated"] for state in states if "terminated" in state), None)
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    scheduled, disruption = conditions.get("PodScheduled"), conditions.get("DisruptionTarget")
    if disruption is not None and disruption["status"] != "True":
        disruption = None
    waits = [state["waiting"] for state in states if "waiting" in state]
    reason = _join(status)
    if not reason and disruption is not None:
        reason = _join(disruption)
    if not reason and ended is not None and ended.get("reason") not in ("Error", "Completed"):
        reason = _join(ended)
    return Pod(
        metadata["name"],
        status.get("phase") or "Unknown",
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
        parse_time(metadata["creationTimestamp"]),
        next((_join(each) for each in waits if each.get("reason") not in USUAL_WAITS), None),
        None if ended is None else int(ended["exitCode"]),
        reason,
        metadata["uid"],
        _join(scheduled) if scheduled is not None and scheduled["status"] == "False" else "",
        disruption is not None,
        "deletionTimestamp" in metadata,
        _memory_limit(manifest),
    )


def _memory_limit(manifest: Json) -> str:
    containers = (manifest.get("spec") or {}).get("containers") or [{}]
    main = next((each for each in containers if each.get("name") == "main"), containers[0])
    limits: Json = (main.get("resources") or {}).get("limits") or {}
    return str(limits.get("memory", ""))


def _join(status: Json) -> str:
    return ": ".join(filter(None, (status.get("reason"), status.get("message"))))


class PodWatch:
    """Watches the pods with certain labels, in a thread.

    Kubeflow's training operator deletes a failed pod 0.04 to 0.2 s after its end; a client that
    lists pods every few seconds misses how the pod ended. The watch serves people only: without
    the permission, or while the connection is broken, nothing is known of deleted pods.
    https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
    """

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str, selector: str):
        self._client, self._namespace, self._selector = client, namespace, selector
        self._lock = threading.Lock()
        self._last: dict[str, Pod] = {}
        self._ending: dict[str, None] = {}  # uids, in the order in which the deletions were seen
        self._over = threading.Event()
        self.refused = False  # whether the credentials do not allow it

    def start(self) -> PodWatch:
        """Starts the thread, which ends with the process."""
        threading.Thread(target=self._run, name="pods", daemon=True).start()
        return self

    def close(self) -> None:
        """Ends the thread, at the latest with its present request."""
        self._over.set()

    def seen(self) -> list[Pod]:
        """The last state of all pods since the start, the oldest first."""
        with self._lock:
            return sorted(self._last.values(), key=lambda pod: (pod.created, pod.name))

    def deleted(self) -> list[str]:
        """The uids of deleted pods, in the order of their deletions."""
        with self._lock:
            return list(self._ending)

    def observe(self, pod: Pod) -> None:
        """Takes over a state."""
        with self._lock:
            self._last[pod.uid] = pod
            if pod.deleted:
                self._ending.setdefault(pod.uid)

    def _run(self) -> None:
        version = ""
        while not self._over.is_set():
            try:
                for event in self._events(version):
                    if event["type"] == "ERROR":  # 410: the server lacks changes since the version
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    self.observe(pod_of(event["object"]))
            except ApiException as error:
                if error.status in (401, 403):
                    self.refused = True
                    return
                version = ""
            except (urllib3.exceptions.HTTPError, OSError, ValueError):  # the connection broke
                pass
            self._over.wait(1.0)

    def _events(self, version: str) -> Iterator[Json]:
        response = kubernetes.client.CoreV1Api(self._client).list_namespaced_pod(
            self._namespace,
            label_selector=self._selector,
            watch=True,
            timeout_seconds=_TERM_SECONDS,
            _request_timeout=(10, _TERM_SECONDS + 30),
            _preload_content=False,
            **({"resource_version": version} if version else {}),
        )
        rest = b""
        try:
            for part in response.stream():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if self._over.is_set():
                        return
                    yield json.loads(line)
        finally:
            response.close()
