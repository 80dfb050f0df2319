"""Pipelines, versions and runs of the server, alike for all versions of kfp."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from stagecraft.pipeline.kubeflow.document import Document
from stagecraft.pipeline.kubeflow.spec import Json

FINISHED = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELED")
"""Final states of a run: ``RuntimeState`` in run.proto."""


_STOPPING = "CANCELING"


class Pipeline(NamedTuple):
    """An uploaded pipeline."""

    id: str
    name: str
    description: str
    created: datetime.datetime | None

    @classmethod
    def of(cls, answer: Any) -> Pipeline:
        """Converts kfp's object."""
        return cls(
            answer.pipeline_id,
            answer.display_name or getattr(answer, "name", ""),
            answer.description or "",
            answer.created_at,
        )


class Version(NamedTuple):
    """One version of a pipeline."""

    id: str
    pipeline_id: str
    name: str
    created: datetime.datetime | None
    spec: Json

    @classmethod
    def of(cls, answer: Any) -> Version:
        """Converts kfp's object."""
        return cls(
            answer.pipeline_version_id,
            answer.pipeline_id,
            answer.display_name or getattr(answer, "name", ""),
            answer.created_at,
            answer.pipeline_spec or {},
        )

    @property
    def document(self) -> Document:
        """The uploaded file."""
        return document(self.spec)


class Run(NamedTuple):
    """A run."""

    id: str
    name: str
    state: str
    """PENDING, RUNNING, SUCCEEDED, SKIPPED, FAILED, CANCELING, CANCELED or PAUSED."""

    created: datetime.datetime | None
    finished: datetime.datetime | None
    experiment_id: str
    pipeline_id: str | None
    version_id: str | None
    parameters: Json
    stopped_at: datetime.datetime | None
    """When a user stopped the run, if any did. The server reports such a run as FAILED."""

    error: str
    tasks: list[Any]
    """``V2beta1PipelineTaskDetail``, one for each of Argo's nodes."""

    spec: Json

    @classmethod
    def of(cls, answer: Any) -> Run:
        """Converts kfp's object."""
        reference = answer.pipeline_version_reference
        finished, history = answer.finished_at, answer.state_history or ()
        return cls(
            answer.run_id,
            answer.display_name,
            answer.state or "PENDING",
            answer.created_at,
            # The server's zero is 1970.
            finished if finished is not None and finished.year > 1970 else None,
            answer.experiment_id,
            reference.pipeline_id if reference else None,
            reference.pipeline_version_id if reference else answer.pipeline_version_id,
            (answer.runtime_config.parameters if answer.runtime_config else None) or {},
            next((each.update_time for each in history if each.state == _STOPPING), None),
            (answer.error.message if answer.error else None) or "",
            (answer.run_details.task_details if answer.run_details else None) or [],
            answer.pipeline_spec or {},
        )

    @property
    def stopped(self) -> bool:
        """Whether a user stopped the run."""
        return self.stopped_at is not None

    @property
    def is_over(self) -> bool:
        """Whether its state is final."""
        return self.state in FINISHED


def document(spec: Json) -> Document:
    """Reads the server's answer: a spec, or a spec and a platform document (api_converter.go)."""
    platform = spec.get("platform_spec", {}).get("platforms", {}).get("kubernetes", {})
    return Document(
        spec.get("pipeline_spec", spec), platform.get("deploymentSpec", {}).get("executors", {})
    )
