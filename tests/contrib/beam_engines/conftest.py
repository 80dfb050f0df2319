"""Beam's job server in Python, whose jobs do what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.local_job_service import BeamJob, LocalJobServicer

STATES = beam_job_api_pb2.JobState


class JobService:
    """A job server on a local port. ``behaviour`` is a function of its next jobs."""

    def __init__(self) -> None:
        self.behaviour: Callable[[Any], None] | None = None
        self.cancelled = threading.Event()
        self.started = threading.Event()
        self.deaf = False
        self.before_answer: Callable[[], object] = lambda: None
        """Runs between the start of a job and the answer of the server."""
        service = self

        class Job(BeamJob):
            def _run_job(self) -> None:
                service.started.set()
                if service.behaviour is None:
                    super()._run_job()
                else:
                    self.set_state(STATES.RUNNING)
                    service.behaviour(self)

            def cancel(self) -> None:
                service.cancelled.set()
                if not service.deaf:
                    self.set_state(STATES.CANCELLED)

        class Servicer(LocalJobServicer):
            def Run(self, request: Any, context: Any = None, timeout: Any = None) -> Any:
                answer = super().Run(request, context, timeout)
                service.before_answer()
                return answer

        self.servicer = Servicer(beam_job_type=Job)
        self.endpoint = f"localhost:{self.servicer.start_grpc_server()}"

    def states(self) -> list[str]:
        """The state of each job."""
        return [STATES.Enum.Name(job.state) for job in self.servicer._jobs.values()]

    def hang(self) -> None:
        """Makes jobs run until they are cancelled."""
        self.behaviour = lambda job: None

    def fail(self, message: str) -> None:
        """Makes jobs fail."""

        def behaviour(job: Any) -> None:
            error = beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR
            said = beam_job_api_pb2.JobMessage(importance=error, message_text=message)
            job._log_queues.put(said)
            job.set_state(STATES.FAILED)

        self.behaviour = behaviour

    def stop(self) -> None:
        """Ends the server, and all its connections."""
        self.servicer._server.stop(0).wait()


@pytest.fixture
def job_service() -> Iterator[JobService]:
    """A job server for one test."""
    service = JobService()
    yield service
    service.stop()


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """``events()``: the events and progress of jobs so far."""
    caplog.set_level("INFO", logger="stagecraft")

    def events() -> list[dict[str, Any]]:
        records = (vars(record) for record in caplog.records)
        return [
            record.get("event") or record["progress"]
            for record in records
            if "event" in record or "progress" in record
        ]

    return events
