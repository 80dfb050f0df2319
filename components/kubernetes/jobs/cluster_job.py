"""The base class of all kinds of cluster jobs: what launcher and preflight ask a kind."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.common.registry import Entry
from stagecraft.components.kubernetes.jobs.request import JobRequest, Json

SUCCESS_POLICY = (1, 31)
"""The first Kubernetes with success policies. An older server drops the field without a message,
and the job does not end with its chief:
https://kubernetes.io/docs/concepts/workloads/controllers/job/#success-policy"""

_INDEX = "batch.kubernetes.io/job-completion-index"


class Permission(NamedTuple):
    """The Trainer's work with a resource of the API."""

    group: str
    resource: str
    """Plural, with a subresource as ``pods/log``."""
    verbs: tuple[str, ...]
    without: str = ""
    """Consequence for the step if an optional permission is missing; empty: it is required."""


class RequiredObject(NamedTuple):
    """An object that must exist before the job is created."""

    check: str  # name of the check in ``stagecraft doctor``
    path: str

    title: str  # kind and name, for people
    advice: str  # how to create it, in the imperative


class JobState(NamedTuple):
    """The state of a job, as its controller reports it."""

    state: str  # ``running``, ``done`` or ``failed``
    message: str = ""


class JobRefusedError(UserError):
    """The API server refused to create a job: nothing has started."""

    def __init__(self, message: str, *, status: int, **fields: Any):
        super().__init__(message, **fields)
        self.status = status  # HTTP


class ClusterJob(Entry, abc.ABC):
    """A kind of cluster job that runs the processes of a training."""

    group: str
    version: str
    kind: str  # in the Kubernetes API, such as ``Job``
    controller: str  # the software that runs jobs of this kind
    needs_operator: bool = True  # whether people install the controller themselves
    container: str  # name of the container that trains, in each pod
    succeeded: str = "Complete"  # type of the condition of a job that succeeded
    resources_by_role: bool = False
    """Whether each role has resources of its own; otherwise all processes get a worker's."""
    quota: tuple[str, ...]
    """Keys of a ResourceQuota that one job counts for. Objects that the controller creates are not
    all listed."""

    @property
    def plural(self) -> str:
        """The resource in the API's paths."""
        return f"{self.kind.lower()}s"

    @abc.abstractmethod
    def render(self, request: JobRequest) -> list[Json]:
        """Makes the objects, in the order in which to create them; the job is the last one."""

    def body(self, request: JobRequest, spec: Json) -> Json:
        """The job, with its kind and its metadata."""
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.kind,
            "metadata": request.metadata(),
            "spec": spec,
        }

    def permissions(self) -> list[Permission]:
        """Permissions that the Trainer's step needs for the rendered objects."""
        return [Permission(self.group, self.plural, ("create", "get", "patch", "delete"))]

    def required_objects(self, namespace: str) -> list[RequiredObject]:
        """Objects that must exist before the job is created."""
        del namespace
        return []

    def success_policy_user(self, request: JobRequest) -> str:
        """Reason for a success policy, for people; empty where the job needs none."""
        del request
        return ""

    def max_lost_pods(self, request: JobRequest) -> int | None:
        """Lost pods after which the launcher ends the job; None where the controller counts."""
        del request
        return None

    def max_job_restarts(self, request: JobRequest) -> int:
        """How often the launcher starts the job anew if :meth:`fails_with_any_pod`."""
        del request
        return 0

    def fails_with_any_pod(self, ended: JobState) -> bool:
        """Whether the controller ended the job for a pod that another attempt would replace."""
        del ended
        return False

    def state(self, job: Json) -> JobState:
        """The state that the job's conditions report."""
        for condition in job.get("status", {}).get("conditions", ()):
            if condition.get("status") != "True":
                continue
            if condition["type"] == self.succeeded:
                return JobState("done")
            if condition["type"] == "Failed":
                reasons = (condition.get("reason"), condition.get("message"))
                return JobState("failed", ": ".join(filter(None, reasons)))
        return JobState("running")

    def is_suspended(self, job: Json) -> bool:
        """Whether the job waits for Kueue's admission."""
        return bool(job.get("spec", {}).get("suspend"))

    def role(
        self, labels: Mapping[str, str], annotations: Mapping[str, str], roles: Sequence[str]
    ) -> str | None:
        """The role of a pod, of all ``roles`` by index, such as ``worker 1``; None: unknown."""
        index: Any = annotations.get(_INDEX) or labels.get(_INDEX)
        return roles[int(index)] if index is not None and int(index) < len(roles) else None


def needs_newer_kubernetes(
    job: ClusterJob, request: JobRequest, version: tuple[int, int]
) -> tuple[str, str] | None:
    """Why a version of Kubernetes cannot run a job, and a kind that it can run; None: it can."""
    user = job.success_policy_user(request)
    if not user or version >= SUCCESS_POLICY:
        return None
    needed = ".".join(map(str, SUCCESS_POLICY))
    return f"{user} needs Kubernetes {needed} (successPolicy)", "tfjob" if request.serves else "job"
