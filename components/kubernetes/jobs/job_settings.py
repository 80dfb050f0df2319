"""The cluster job of a training, as settings (``kubeflow.job:``).

Imports neither TensorFlow, TFX nor the Kubernetes client: checking settings is instant.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from stagecraft.common.registry import Registry
from stagecraft.common.settings import Settings
from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings

CLUSTER_JOBS = Registry(
    "stagecraft.components.kubernetes.jobs.cluster_job:ClusterJob",
    "kubeflow.job.kind",
    "stagecraft.components.kubernetes.jobs.kinds",
    "stagecraft.cluster_jobs",
)
"""The kinds of cluster jobs, including those of other packages."""


class JobSettings(Settings):
    """The Kubernetes job of a training; its pods get what the Trainer's step would get."""

    kind: Annotated[str, AfterValidator(CLUSTER_JOBS.known)] = Field(
        "job", description="kind of cluster job: job, tfjob, trainjob, or a kind of another package"
    )
    folder: str = Field(
        "",
        description="folder in which the Trainer and the job's pods exchange data and models: on "
        "a volume of the Trainer step, such as /mnt/training/jobs, or in an object store, such as "
        "s3://bucket/jobs",
    )
    service_account: str = Field(
        "",
        description="service account of the job's pods; default: the default account of the "
        "namespace",
    )
    queue: str = Field("", description="Kueue's LocalQueue for the job; default: none")
    priority_class: str = Field("", description="PriorityClass of the job's pods")
    deadline_seconds: int = Field(
        7 * 86_400, ge=1, description="seconds after which Kubernetes ends the job"
    )
    ttl_seconds: int = Field(
        3_600,
        ge=600,  # the Trainer's step must see the end, also after an outage
        description="seconds from the end of the job until Kubernetes deletes it, with its logs",
    )
    lease_seconds: int = Field(
        900,
        ge=30,
        description="seconds after which the job's pods end if the Trainer step renews no lease; "
        "set more than the longest pause before the next attempt of a step (600)",
    )


class ClusterSettings(Settings):
    """Settings with which the Trainer's step starts a job: in its environment, as JSON."""

    image: str
    job: JobSettings
    pod: PodSettings


CLUSTER = "STAGECRAFT_CLUSTER"
"""The environment variable. A parameter of the step would be part of its cache key, and where a
training runs does not change its result."""
