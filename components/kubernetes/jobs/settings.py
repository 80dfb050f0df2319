"""The cluster job of a training, and what a pod gets from Kubernetes, as settings.

They are ``kubeflow.job:`` and the settings of a step. Imports neither TensorFlow nor TFX,
nor the Kubernetes client: checking settings is instant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stagecraft.common import kubernetes_syntax
from stagecraft.common.registry import Registry
from stagecraft.common.settings import Settings

_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")


AbsolutePath = Annotated[str, Field(pattern=r"^/")]

CLUSTER_JOBS = Registry(
    "stagecraft.components.kubernetes.jobs.cluster_job:ClusterJob",
    "kubeflow.job.kind",
    "stagecraft.components.kubernetes.jobs.kinds",
    "stagecraft.cluster_jobs",
)
"""The kinds of cluster jobs, including those of other packages."""

CLUSTER = "STAGECRAFT_CLUSTER"
"""The environment variable. A parameter of the step would be part of its cache key, and where a
training runs does not change its result."""


def _quantity(value: str) -> str:
    if not _QUANTITY.fullmatch(value):
        raise ValueError("expected a Kubernetes quantity, such as 4, 500m or 16Gi")
    return value


Quantity = Annotated[str, Field(coerce_numbers_to_str=True), AfterValidator(_quantity)]
"""https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""


def _checked(rule: Callable[[str], str]) -> AfterValidator:
    """A validator from a rule of :mod:`kubernetes_syntax`."""

    def check(value: str) -> str:
        if problem := rule(value):
            raise ValueError(f"{value!r} {problem}")
        return value

    return AfterValidator(check)


_ClaimName = Annotated[str, _checked(kubernetes_syntax.volume_of_claim)]
_SecretName = Annotated[str, _checked(kubernetes_syntax.subdomain)]
_SecretKey = Annotated[str, _checked(kubernetes_syntax.config_key)]
_Variable = Annotated[str, _checked(kubernetes_syntax.variable)]
_LabelKey = Annotated[str, _checked(kubernetes_syntax.label_key)]
_LabelValue = Annotated[str, _checked(kubernetes_syntax.label_value)]
_SubPath = Annotated[str, _checked(kubernetes_syntax.sub_path)]
Image = Annotated[str, _checked(kubernetes_syntax.image)]


class Volume(Settings):
    """A persistent volume claim in a step's file system."""

    claim: _ClaimName = Field(description="name of the PersistentVolumeClaim")
    path: AbsolutePath = Field(description="path to mount the volume at")
    sub_path: _SubPath = Field("", description="folder of the volume to mount; default: all")


class Secret(Settings):
    """A key of a Kubernetes secret as an environment variable."""

    name: _SecretName = Field(description="name of the secret")
    key: _SecretKey = Field(description="key in the secret")
    env: _Variable = Field(description="environment variable that gets its value")


class Toleration(Settings):
    """A taint that a step's pod may be scheduled in spite of."""

    key: str = Field("", description="the taint's key; default: all")
    operator: Literal["Exists", "Equal"] = Field("Exists", description="how value is compared")
    value: str = Field("", description="the taint's value, with Equal")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        "", description="the taint's effect; default: all"
    )


class PodSettings(Settings):
    """Resources and settings of a pod."""

    image: Image | None = Field(
        None, description="container image instead of kubeflow.image, preferably by its digest"
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None,
        description="when to pull the image; default: IfNotPresent, or Always if its tag is latest "
        "or missing",
    )
    cpu: Quantity | None = Field(None, description="limit of processor cores, such as 4 or 500m")
    memory: Quantity | None = Field(None, description="limit of memory, such as 16Gi")
    gpus: int = Field(0, ge=0, description="number of accelerators")
    gpu_resource: str = Field(
        "nvidia.com/gpu", description="Kubernetes resource name of the accelerators"
    )
    shared_memory: Quantity | None = Field(
        None, description="size of /dev/shm, which NCCL needs, such as 16Gi; default: 64 MB"
    )
    volumes: tuple[Volume, ...] = Field((), description="volumes: claim, path, sub_path")
    node_selector: dict[_LabelKey, _LabelValue] = Field(
        {}, description="labels that the node must have"
    )
    tolerations: tuple[Toleration, ...] = Field(
        (), description="taints that the pod tolerates: key, operator, value, effect"
    )
    env: dict[_Variable, str] = Field({}, description="environment variables")
    secrets: tuple[Secret, ...] = Field(
        (), description="secrets as environment variables: name, key, env"
    )

    def pull_policy(self, image: str) -> str | None:
        """``imagePullPolicy`` of a container with an image; None: the default of Kubernetes."""
        if self.image_pull_policy or kubernetes_syntax.is_latest(image):
            return self.image_pull_policy
        return "IfNotPresent"


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
