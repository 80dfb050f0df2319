"""A job on an engine: follows it, and cancels it if this process must end first. Imports no Beam.

A process that is killed cannot cancel its jobs. The supervisor of the run then runs this module,
and writes the ``job`` of the job's last event to its standard input, as JSON::

    python -m stagecraft.contrib.beam_engines.jobs
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.contrib.beam_engines.flink_rest import ENDED, FlinkRest
from stagecraft.trainer_module.processes import preemption

CANCEL_SECONDS = 20.0
"""Longest time that the cancellation of a job takes."""

_POLL_SECONDS = 2.0
_CALL_SECONDS = 10.0

_BY_NAME = "look for its name in the engine, and cancel it there"

_log = logging.getLogger(__name__)
_progress = logging.getLogger("stagecraft.progress")

_lock = threading.Lock()
_running: list[Following] = []


class WorkerTimeoutError(UserError):
    """A job that was not done in time."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A job, and where it is to be found."""

    name: str
    """Unique: the engine and its job server list it by this name."""

    engine: str
    """Such as ``Flink``."""

    endpoint: str = ""
    """``host:port`` of the job server; empty: it is in this process."""

    rest: str = ""
    """Address of Flink's REST API; empty: unknown."""

    dies_with_server: bool = False
    """Whether the engine is in the process of the job server, which ends with this run."""

    def cancel(self, deadline: float) -> str:
        """Cancels the job and waits for its end; returns what may remain, in words.

        The job server reports CANCELLED while Flink still runs the job, therefore Flink is asked.
        """
        problem = self._cancel_at_server(deadline) if self.endpoint else ""
        if self.dies_with_server:
            with contextlib.suppress(OSError):  # a Flink without a job may have ended
                if self.rest:
                    FlinkRest(self.rest).cancel(self.name, deadline)
            return ""
        by_hand = _BY_NAME
        if self.rest:
            by_hand = "look for it: flink list; cancel it: flink cancel ID"
            try:
                left = FlinkRest(self.rest).cancel(self.name, deadline)
            except OSError as error:
                problem = f"Flink does not answer ({error})"
            else:
                problem = "Flink does not end it" if left else ""
                by_hand = f"cancel it: flink cancel {left}"
        elif self.engine == "Flink" and self.endpoint and not problem:
            problem = "only its job server was asked; with --flink_master, Flink is asked too"
            by_hand = "look for it: flink list; cancel it: flink cancel ID"
        return problem and f"the job {self.name} may still run: {problem}; {by_hand}"

    def _cancel_at_server(self, deadline: float) -> str:
        import grpc
        from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

        states = beam_job_api_pb2.JobState
        ended = (states.DONE, states.FAILED, states.CANCELLED, states.DRAINED)
        with grpc.insecure_channel(self.endpoint) as channel:
            server = beam_job_api_pb2_grpc.JobServiceStub(channel)
            try:
                found = server.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=_CALL_SECONDS)
                for job in found.job_info:
                    options = job.pipeline_options.fields
                    named = options["beam:option:job_name:v1"].string_value == self.name
                    if not (named or job.job_name == self.name) or job.state in ended:
                        continue
                    request = beam_job_api_pb2.CancelJobRequest(job_id=job.job_id)
                    server.Cancel(request, timeout=_CALL_SECONDS)
                    state = beam_job_api_pb2.GetJobStateRequest(job_id=job.job_id)
                    while server.GetState(state, timeout=_CALL_SECONDS).state not in ended:
                        if time.monotonic() > deadline:
                            return f"the job server {self.endpoint} does not end {job.job_id}"
                        time.sleep(0.2)
            except grpc.RpcError as error:
                return f"the job server {self.endpoint} does not answer ({error.code().name})"
        return ""


class Following:
    """A job while this process waits for its end."""

    def __init__(self, job: Job):
        self._job = job
        self._handle: Any = None
        self._error: BaseException | None = None
        self._submitted, self._ended = threading.Event(), threading.Event()
        self._cancelling = threading.Lock()
        self._sent = self._cancelled = self._settled = False

    def sending(self) -> None:
        """Notes that the engine is about to get the job; raises if the job is cancelled."""
        with self._cancelling:
            if self._cancelled:
                raise InterruptedError(f"{self._job.name} is cancelled")
            self._sent = True

    @property
    def state(self) -> str:
        """The latest state that the job server reported, such as ``RUNNING``."""
        state = getattr(self._handle, "_state", None)  # its property asks, and may block
        return state if isinstance(state, str) else "RUNNING" if self._handle else "STARTING"

    def run(self, submit: Callable[[], Any], timeout: float | None = None) -> Any:
        """Submits the job and returns its handle after its end.

        Submission runs in a thread, where no signal can interrupt it between the start of the job
        and the answer of the job server.

        Args:
            submit: calls :meth:`sending`, and returns Beam's ``PipelineResult``.
            timeout: seconds that the job may take.

        Raises:
            WorkerTimeoutError: the job was not done in time, and is cancelled.
            KeyboardInterrupt: after SIGINT or SIGTERM; the job is cancelled.
        """
        deadline = time.monotonic() + timeout if timeout else None
        with self._registered(), _sigterm_interrupts():
            try:
                thread = threading.Thread(target=self._work, args=[submit], daemon=True)
                thread.start()
                while not self._ended.wait(_POLL_SECONDS):
                    self._report()
                    if deadline and time.monotonic() > deadline:
                        raise WorkerTimeoutError(f"{self._job.name}: not done in {timeout:g} s")
            except BaseException:
                self.cancel()
                raise
            if self._error is not None and self.state not in ("DONE", "FAILED"):
                self.cancel()  # the job server is lost, but the engine may be at work
        if self._error is not None:
            raise self._error
        return self._handle

    def cancel(self) -> None:
        """Cancels the job once; logs what may remain."""
        with self._cancelling:
            if self._cancelled or (self._ended.is_set() and self._error is None):
                return
            self._cancelled = True
            if not self._sent:
                return
            self._emit("cancelling", seconds=CANCEL_SECONDS + _CALL_SECONDS)
            deadline = time.monotonic() + CANCEL_SECONDS
            self._submitted.wait(_CALL_SECONDS)
            if not self._job.endpoint and self._handle is not None:
                try:
                    self._handle.cancel()
                except Exception as error:  # of the engine's client
                    _log.error("%s", error)
                    deadline = time.monotonic()
            left = self._job.cancel(deadline)
            if self._handle is not None:  # Beam also stops its servers for the job
                self._ended.wait(max(0.0, deadline - time.monotonic()))
            if not (left or self._ended.is_set()):
                left = f"the {self._job.engine} job {self._job.name} has not ended; {_BY_NAME}"
            if left:
                _log.error("%s", left)
                self._emit("left", left=left)
            else:
                self._emit("ended")

    def _work(self, submit: Callable[[], Any]) -> None:
        try:
            try:
                self._handle = submit()
            finally:
                self._submitted.set()
            self._handle.wait_until_finish()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _report(self) -> None:
        """Logs progress: tasks and records where Flink says them, otherwise the state."""
        fields: dict[str, Any] = {"phase": "job", "engine": self._job.engine}
        fields["state"] = self.state.lower()
        if self._job.rest:
            with contextlib.suppress(OSError):
                flink = FlinkRest(self._job.rest)
                found = flink.find(self._job.name)
                tasks = flink.progress(found) if found and found.state not in ENDED else {}
                fields |= tasks if tasks.get("total") else {}
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        _progress.info("%s: %s", self._job.name, text, extra={"progress": fields})

    def _emit(self, state: str, **fields: Any) -> None:
        self._settled = state in ("ended", "left")
        event = {"kind": "job", "state": state, "job": dataclasses.asdict(self._job), **fields}
        _log.info("%s job %s: %s", self._job.engine, self._job.name, state, extra={"event": event})

    @contextlib.contextmanager
    def _registered(self) -> Iterator[None]:
        _cancel_all_at_sigterm()
        with _lock:
            _running.append(self)
        self._emit("running")
        try:
            yield
        finally:
            with _lock:
                _running.remove(self)
            if not self._settled:
                self._emit("ended")


@functools.cache
def _cancel_all_at_sigterm() -> None:
    preemption.on_sigterm(cancel_all)  # in a process where a thread waits for SIGTERM


def cancel_all() -> bool:
    """Cancels all jobs of this process and waits for their end; returns whether there were any."""
    with _lock:
        jobs = list(_running)
    threads = [threading.Thread(target=job.cancel, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return bool(jobs)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt in the main thread, unless the program handles it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def main() -> None:
    """Cancels the job that standard input describes; prints what may remain."""
    job = Job(**json.load(sys.stdin))
    print(job.cancel(time.monotonic() + CANCEL_SECONDS))


if __name__ == "__main__":
    main()
