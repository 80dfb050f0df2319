"""The state of pods."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import kubernetes

from stagecraft.components.kubernetes.api.connection import call, explained, parse_time

Json = dict[str, Any]

REMEDY = (
    "Apply manifests/base/logs-access.yaml, which grants list on pods and get on pods/log. For a "
    "Trainer step, apply manifests/base/training-access.yaml, which grants all its permissions."
)

USUAL_WAITS = (None, "ContainerCreating", "PodInitializing")
"""The reasons for which a container waits although nothing is wrong."""


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


OUT_OF_MEMORY = "OOMKilled"
"""Reason of a container that the kernel killed because it exceeded its memory limit."""


def _memory_limit(manifest: Json) -> str:
    containers = (manifest.get("spec") or {}).get("containers") or [{}]
    main = next((each for each in containers if each.get("name") == "main"), containers[0])
    limits: Json = (main.get("resources") or {}).get("limits") or {}
    return str(limits.get("memory", ""))


def _join(status: Json) -> str:
    return ": ".join(filter(None, (status.get("reason"), status.get("message"))))
