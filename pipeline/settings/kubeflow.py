"""How a pipeline runs on Kubeflow (``kubeflow:``).

Imports neither TensorFlow, TFX nor Kubernetes: checking settings is instant.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from stagecraft.components.kubernetes.jobs.job_settings import JobSettings
from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings
from stagecraft.schemas.base_settings import Settings
from stagecraft.schemas.errors import UserError


def _address(value: str) -> str:
    if not re.fullmatch(r"(gs|s3|minio)://[^/]+(/.*)?", value):
        raise ValueError("expected an address such as minio://bucket/folder, s3:// or gs://")
    return value


class Step(PodSettings):
    """What one step of the pipeline gets from Kubernetes."""

    retries: int = Field(0, ge=0, description="attempts after a failed one")
    timeout_seconds: int = Field(
        0, ge=0, description="after which the step is ended; 0: the cluster's limit"
    )


class KubeflowSettings(Settings):
    """Where things are, and what each step gets."""

    image: str = Field(
        "stagecraft:latest",
        description="container image of all steps (see Dockerfile); best by its digest, "
        "registry/name@sha256:…, so that a run can be repeated",
    )
    pipeline_root: Annotated[str, AfterValidator(_address)] = Field(
        "minio://mlpipeline/stagecraft",
        description="object-store address below which artifacts are written",
    )
    checkpoints: str = Field(
        "checkpoints",
        description="folder for what a stopped training goes on from; on a volume it outlives the "
        "pod, relative to the working directory it does not; with parallel.launcher: kubernetes "
        "also an address, as s3://bucket/checkpoints",
    )
    job: JobSettings = JobSettings()
    every_step: Step = Field(Step(), description="what every step gets")
    steps: dict[str, Step] = Field(
        {}, description="by component, such as Trainer: what it gets instead"
    )

    def check_names(self, names: list[str]) -> None:
        """Checks that ``steps`` are of a pipeline.

        Args:
            names: of its components.

        Raises:
            UserError: one is not.
        """
        if unknown := sorted(set(self.steps) - set(names)):
            raise UserError(
                f"kubeflow.steps: {', '.join(unknown)}: no such component; there are "
                f"{', '.join(names)}."
            )

    def has_own_image(self, name: str) -> bool:
        """Whether an image is named for this one step."""
        return name in self.steps and self.steps[name].image is not None

    def step(self, name: str) -> Step:
        """What a step gets: its own fields, and all others from ``every_step``.

        Of ``env`` and ``node_selector``, keys are taken together.
        """
        own = self.steps.get(name)
        if own is None:
            return self.every_step
        merged = self.every_step.model_dump()
        for field in own.model_fields_set:
            value = getattr(own, field)
            merged[field] = {**merged[field], **value} if isinstance(value, dict) else value
        return Step.model_validate(merged)
