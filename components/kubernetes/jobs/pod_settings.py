"""Settings of what a pod gets from Kubernetes.

Imports neither TensorFlow, TFX nor the Kubernetes client: checking settings is instant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stagecraft.common import kubernetes_names
from stagecraft.common.settings import Settings

_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")


def _quantity(value: str) -> str:
    if not _QUANTITY.fullmatch(value):
        raise ValueError("expected a Kubernetes quantity, such as 4, 500m or 16Gi")
    return value


Quantity = Annotated[str, Field(coerce_numbers_to_str=True), AfterValidator(_quantity)]
"""https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""


def _checked(rule: Callable[[str], str]) -> AfterValidator:
    """A validator from a rule of :mod:`kubernetes_names`."""

    def check(value: str) -> str:
        if problem := rule(value):
            raise ValueError(f"{value!r} {problem}")
        return value

    return AfterValidator(check)


_ClaimName = Annotated[str, _checked(kubernetes_names.volume_of_claim)]
_SecretName = Annotated[str, _checked(kubernetes_names.subdomain)]
_SecretKey = Annotated[str, _checked(kubernetes_names.config_key)]
_Variable = Annotated[str, _checked(kubernetes_names.variable)]
_LabelKey = Annotated[str, _checked(kubernetes_names.label_key)]
_LabelValue = Annotated[str, _checked(kubernetes_names.label_value)]
_SubPath = Annotated[str, _checked(kubernetes_names.sub_path)]
Image = Annotated[str, _checked(kubernetes_names.image)]

AbsolutePath = Annotated[str, Field(pattern=r"^/")]


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
        if self.image_pull_policy or kubernetes_names.is_latest(image):
            return self.image_pull_policy
        return "IfNotPresent"
