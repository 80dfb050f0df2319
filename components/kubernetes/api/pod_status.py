"""The state of pods."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import kubernetes

from stagecraft.components.kubernetes.api.connection import explained

REMEDY = (
    "Apply manifests/base/logs-access.yaml, which grants list on pods and get on pods/log. For a "
    "Trainer step, apply manifests/base/training-access.yaml, which grants all its permissions."
)

_USUAL = (None, "ContainerCreating", "PodInitializing")
"""What a container waits for when nothing is wrong."""


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

    @property
    def is_over(self) -> bool:
        """Whether all its containers have ended."""
        return self.phase in ("Succeeded", "Failed")


def pods(client: kubernetes.client.ApiClient, namespace: str, selector: str) -> list[Pod]:
    """Pods with certain labels, the oldest first."""
    with explained(f"Pods of namespace {namespace} cannot be listed", REMEDY):
        answer = kubernetes.client.CoreV1Api(client).list_namespaced_pod(
            namespace, label_selector=selector, _request_timeout=(10, 30)
        )
    return sorted(map(pod_of, answer.items), key=lambda pod: (pod.created, pod.name))


def pod_of(item: Any) -> Pod:
    """The state that a ``V1Pod`` of the client reports."""
    metadata, status = item.metadata, item.status
    states = [each.state for each in status.container_statuses or () if each.state]
    ended = next((state.terminated for state in states if state.terminated), None)
    conditions = {each.type: each for each in status.conditions or ()}
    scheduled, disruption = conditions.get("PodScheduled"), conditions.get("DisruptionTarget")
    if disruption is not None and disruption.status != "True":
        disruption = None
    waits = [state.waiting for state in states if state.waiting]
    reason = _join(status)
    if not reason and disruption is not None:
        reason = _join(disruption)
    if not reason and ended is not None and ended.reason not in ("Error", "Completed"):
        reason = _join(ended)
    return Pod(
        metadata.name,
        status.phase or "Unknown",
        metadata.labels or {},
        metadata.annotations or {},
        metadata.creation_timestamp,
        next((_join(each) for each in waits if each.reason not in _USUAL), None),
        None if ended is None else int(ended.exit_code),
        reason,
        metadata.uid,
        _join(scheduled) if scheduled is not None and scheduled.status == "False" else "",
        disruption is not None,
        metadata.deletion_timestamp is not None,
    )


def _join(status: Any) -> str:
    return ": ".join(filter(None, (status.reason, status.message)))
