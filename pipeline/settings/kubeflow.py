"""How a pipeline runs on Kubeflow (``kubeflow:``). Imports nothing heavy."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from stagecraft.components.kubernetes.jobs.job_settings import JobSettings
from stagecraft.components.kubernetes.jobs.pod_settings import Image, PodSettings
from stagecraft.schemas import kubernetes_names
from stagecraft.schemas.base_settings import Settings
from stagecraft.schemas.errors import UserError


def _address(value: str) -> str:
    if not re.fullmatch(r"(gs|s3|minio)://[^/]+(/.*)?", value):
        raise ValueError("expected a URI such as minio://bucket/folder, s3:// or gs://")
    return value


class Step(PodSettings):
    """Resources of one step of the pipeline."""

    retries: int = Field(0, ge=0, description="attempts after the first one fails")
    timeout_seconds: int = Field(
        0,
        ge=0,
        le=kubernetes_names.LARGEST_SECONDS,
        description="seconds until Kubernetes stops the step; 0: the limit of the cluster",
    )


class KubeflowSettings(Settings):
    """Addresses, folders, and the resources of each step."""

    image: Image = Field(
        "stagecraft:latest",
        description="container image of all steps (see Dockerfile); use its digest, "
        "registry/name@sha256:…, to make runs repeatable",
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
