"""The kinds of jobs that a training can run as: ``kubeflow.job.kind``."""

from __future__ import annotations

from collections.abc import Callable

from stagecraft.components.kubernetes.jobs import indexed_job, tfjob, trainjob
from stagecraft.components.kubernetes.jobs.request import JobRequest, Json

RENDERERS: dict[str, Callable[[JobRequest], list[Json]]] = {
    "job": indexed_job.render,
    "tfjob": tfjob.render,
    "trainjob": trainjob.render,
}

CONTAINERS = {
    "job": indexed_job.CONTAINER,
    "tfjob": tfjob.CONTAINER,
    "trainjob": trainjob.CONTAINER,
}
"""What a pod's container that trains is called."""


SUCCESS_POLICY = (1, 31)
"""Kubernetes' version: https://kubernetes.io/docs/concepts/workloads/controllers/job/#success-policy"""


def needs_success_policy(request: JobRequest) -> str:
    """What needs a Kubernetes with it; empty: nothing does.

    An older server drops the field without a word, and the job does not end with its chief.
    """
    if request.job.kind == "trainjob":
        return "a TrainJob"
    return "parameter_server in a Job" if request.job.kind == "job" and request.serves else ""


def render(request: JobRequest) -> list[Json]:
    """The objects of a training, in the order to create them; the job is the last one.

    Raises:
        UserError: the kind cannot say something that is asked for.
    """
    return RENDERERS[request.job.kind](request)
