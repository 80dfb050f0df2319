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

    schedule_id: str | None
    """Of the schedule that started the run; None: a user started it."""

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
            answer.recurring_run_id or None,
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


class Trigger(NamedTuple):
    """When a schedule starts runs: a cron expression, or an interval."""

    cron: str | None = None
    """Second, minute, hour, day of month, month, day of week; in UTC, unless the cluster's
    ``CRON_SCHEDULE_TIMEZONE`` names another zone."""

    interval_seconds: int | None = None
    """Seconds from one run to the next."""

    start: datetime.datetime | None = None
    end: datetime.datetime | None = None


class Schedule(NamedTuple):
    """A recurring run."""

    id: str
    name: str
    enabled: bool
    trigger: Trigger
    created: datetime.datetime | None
    experiment_id: str
    pipeline_id: str | None
    version_id: str | None
    parameters: Json
    no_catchup: bool
    pipeline_root: str | None
    """The address of the outputs; None: the server chooses it."""

    service_account: str
    """Of the pods; the server fills in its own if the client named none."""

    @classmethod
    def of(cls, answer: Any) -> Schedule:
        """Converts kfp's object. One that the server cannot read has no more than an ID."""
        reference, config = answer.pipeline_version_reference, answer.runtime_config
        cron = answer.trigger.cron_schedule if answer.trigger else None
        periodic = answer.trigger.periodic_schedule if answer.trigger else None
        times = cron or periodic
        return cls(
            answer.recurring_run_id,
            answer.display_name or "",
            answer.status == "ENABLED",
            Trigger(
                cron.cron if cron else None,
                int(periodic.interval_second) if periodic else None,
                times.start_time if times else None,
                times.end_time if times else None,
            ),
            answer.created_at,
            answer.experiment_id or "",
            reference.pipeline_id if reference else None,
            reference.pipeline_version_id if reference else None,
            (config.parameters if config else None) or {},
            bool(answer.no_catchup),
            (config.pipeline_root if config else None) or None,
            answer.service_account or "",
        )


def document(spec: Json) -> Document:
    """Reads the server's answer: a spec, or a spec and a platform document (api_converter.go)."""
    platform = spec.get("platform_spec", {}).get("platforms", {}).get("kubernetes", {})
    return Document(
        spec.get("pipeline_spec", spec), platform.get("deploymentSpec", {}).get("executors", {})
    )
