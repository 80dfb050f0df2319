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


def render(request: JobRequest) -> list[Json]:
    """The objects of a training, in the order to create them; the job is the last one.

    Raises:
        UserError: the kind cannot say something that is asked for.
    """
    return RENDERERS[request.job.kind](request)
