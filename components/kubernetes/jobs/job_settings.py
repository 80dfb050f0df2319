"""How a training's processes run on a cluster, as settings (``kubeflow.job:``).

Imports neither TensorFlow, TFX nor the Kubernetes client: checking settings is instant.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings
from stagecraft.schemas.base_settings import Settings


class JobSettings(Settings):
    """The Kubernetes job of a training; its pods get what the Trainer's step would get."""

    kind: Literal["job", "tfjob", "trainjob"] = Field(
        "job",
        description="job: an Indexed Job, on any cluster; tfjob: of Kubeflow's Training Operator "
        "1.x; trainjob: of Kubeflow Trainer 2.x, with the runtime of manifests/",
    )
    folder: str = Field(
        "",
        description="where the Trainer and the job's pods hand each other data, model and orders: "
        "on a volume of the Trainer's step, as /mnt/training/jobs, or in an object store, as "
        "s3://bucket/jobs",
    )
    service_account: str = Field("", description="of the job's pods; default: the namespace's own")
    queue: str = Field("", description="Kueue's LocalQueue that the job waits in; default: none")
    priority_class: str = Field("", description="PriorityClass of the job's pods")
    deadline_seconds: int = Field(
        7 * 86_400, ge=1, description="after which the job is ended, whatever it is at"
    )
    ttl_seconds: int = Field(
        3_600,
        ge=600,  # who follows it has to see that it is done, also after an outage
        description="after which a job that is over is deleted, with its logs",
    )
    lease_seconds: int = Field(
        900,
        ge=30,
        description="after which the job's pods end by themselves when they hear nothing of the "
        "Trainer; longer than the longest pause before a step's next attempt (600)",
    )


class ClusterSettings(Settings):
    """All that the Trainer's step has to know to start a job: in its environment, as JSON."""

    image: str
    job: JobSettings
    pod: PodSettings


CLUSTER = "STAGECRAFT_CLUSTER"
"""The environment variable. Not a parameter of the step, which would be part of its cache key:
where a training runs changes nothing of what comes of it."""
