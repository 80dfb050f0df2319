"""How a pipeline runs on Kubeflow (``kubeflow:``). Imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

import stagecraft
from stagecraft.common import kubernetes_syntax
from stagecraft.common.errors import UserError
from stagecraft.common.settings import Settings
from stagecraft.components.kubernetes.jobs.settings import (
    Image,
    JobSettings,
    PodSettings,
    Secret,
)

DEFAULT_IMAGE = f"stagecraft:{stagecraft.__version__.replace('+', '-')}"  # a tag has no plus sign
"""The image that ``docker build`` makes of the Dockerfile, with the version of the package."""


def _address(value: str) -> str:
    if not re.fullmatch(r"(gs|s3|minio)://[^/]+(/.*)?", value):
        raise ValueError("expected a URI such as minio://bucket/folder, s3:// or gs://")
    return value


OWN_STORE = (
    Secret(name="mlpipeline-minio-artifact", key="accesskey", env="AWS_ACCESS_KEY_ID"),
    Secret(name="mlpipeline-minio-artifact", key="secretkey", env="AWS_SECRET_ACCESS_KEY"),
)
"""Keys of the store that comes with Kubeflow Pipelines. Its installation creates the Secret, and
the profile controller copies it into profiles (manifests/kustomize in kubeflow/pipelines)."""

_CREDENTIALS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS",),
}
_CREDENTIALS["minio"] = _CREDENTIALS["s3"]


def stores(texts: Iterable[str]) -> set[str]:
    """Schemes of the object stores whose addresses are in the texts."""
    return {found[1] for text in texts for found in re.finditer(r"\b(gs|s3|minio)://", text)}


class Step(PodSettings):
    """Resources of one step of the pipeline."""

    retries: int = Field(0, ge=0, description="attempts after the first one fails")
    timeout_seconds: int = Field(
        0,
        ge=0,
        le=kubernetes_syntax.LARGEST_SECONDS,
        description="seconds until Kubernetes stops the step; 0: the limit of the cluster",
    )

    def with_store_keys(self, schemes: Collection[str]) -> Step:
        """Adds the keys of Kubeflow's own store, for a step that opens ``minio://``.

        Keys in the settings take precedence. AWS's SDK accepts one pair of keys, so a step that
        also opens ``s3://`` gets no keys.
        """
        if "minio" not in schemes or "s3" in schemes or not self.lacks_keys("minio"):
            return self
        return self.model_copy(update={"secrets": (*self.secrets, *OWN_STORE)})

    def lacks_keys(self, scheme: str) -> bool:
        """Whether the settings name no credentials for a store."""
        names = {*self.env, *(secret.env for secret in self.secrets)}
        return names.isdisjoint(_CREDENTIALS[scheme])


class KubeflowSettings(Settings):
    """Addresses, folders, and the resources of each step."""

    image: Image = Field(
        DEFAULT_IMAGE,
        description="container image of all steps (see Dockerfile); the default has the version of "
        "Stagecraft as its tag; use a digest, registry/name@sha256:…, to make runs repeatable",
    )
    backend_version: Annotated[
        str, Field(coerce_numbers_to_str=True, pattern=r"^2\.\d+(\.\d+)?$")
    ] = Field(
        "2.17",
        description="version of the Kubeflow Pipelines backend; compile refuses settings of "
        "steps that this version does not support",
    )
    pipeline_root: Annotated[str, AfterValidator(_address)] = Field(
        "minio://mlpipeline/stagecraft",
        description="object-store URI for artifacts",
    )
    checkpoints: str = Field(
        "checkpoints",
        description="folder for checkpoints; a folder on a volume survives the pod, a relative "
        "folder does not; with parallel.launcher: kubernetes also a URI, such as "
        "s3://bucket/checkpoints",
    )
    job: JobSettings = JobSettings()
    every_step: Step = Field(Step(), description="resources of every step")
    steps: dict[str, Step] = Field(
        {}, description="resources by component, such as Trainer; they override every_step"
    )

    def check_names(self, names: list[str]) -> None:
        """Refuses ``steps`` that a pipeline does not have."""
        if unknown := sorted(set(self.steps) - set(names)):
            raise UserError(
                f"kubeflow.steps: {', '.join(unknown)}: no such component; use {', '.join(names)}.",
                setting="kubeflow.steps",
                value=unknown,
            )

    def has_own_image(self, name: str) -> bool:
        """Whether the step has an image of its own."""
        return name in self.steps and self.steps[name].image is not None

    def step(self, name: str) -> Step:
        """The step's own fields over those of ``every_step``; ``env`` ``node_selector`` merge."""
        own = self.steps.get(name)
        if own is None:
            return self.every_step
        merged = self.every_step.model_dump()
        for field in own.model_fields_set:
            value = getattr(own, field)
            merged[field] = {**merged[field], **value} if isinstance(value, dict) else value
        return Step.model_validate(merged)
