"""Beam's runners for Flink and Spark, and why a job on an engine failed."""

from __future__ import annotations

import abc
import dataclasses
import functools
import re
import uuid
from collections.abc import Callable
from typing import Any

from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
)
from apache_beam.runners.portability import flink_runner, portable_runner, spark_runner

from stagecraft.common.errors import TransientError
from stagecraft.contrib.beam_engines import probe
from stagecraft.contrib.beam_engines.flink_rest import FlinkRest
from stagecraft.contrib.beam_engines.job_server import (
    FLINK_CONFIGURATION,
    JavaServer,
    ran_out_of_memory,
    shared,
)
from stagecraft.contrib.beam_engines.jobs import Following, Job

_AGAIN = "run the same command again: it reuses all finished steps"

_CAUSES = (
    (
        "network buffers",
        r"Insufficient number of network buffers",
        "Flink has too few network buffers for this step",
        "set taskmanager.network.sort-shuffle.min-parallelism: 100000 and "
        "taskmanager.memory.network.max: 192mb in Flink's configuration",
    ),
    (
        "slots",
        r"NoResourceAvailableException|Could not acquire the minimum required resources",
        "Flink has no free task slot",
        "add TaskManagers, or lower --parallelism",
    ),
    (
        "engine process",
        r"TaskManager .*(no longer reachable|timed out|shut ?down|closed|terminat)|"
        r"TaskExecutor .*(shut ?down|terminat)|Heartbeat of TaskManager|"
        r"[Cc]onnection unexpectedly closed by remote task manager|"
        r"disconnect(ed)? from .*TaskManager|ExecutorLostFailure",
        "a process of the engine died: a TaskManager of Flink, or an executor of Spark",
        _AGAIN,
    ),
    (
        "worker",
        r"CANCELLED: (client cancelled|call already cancelled)|SDK harness .*(exited|died)|"
        r"Process died with exit code|"
        r"UNAVAILABLE: (io exception|Network closed|Connection reset)|"
        r"(RST_STREAM|Stream removed|Connection reset by peer)",
        "a Beam worker process died, or lost its connection",
        f"look for a lack of memory in the worker's log, then {_AGAIN}",
    ),
)


class EngineError(TransientError):
    """An engine that ended a job for another reason than an error in the code of a step."""

    def __init__(self, job: Job, fault: str, cause: str, use: str):
        """``fault`` is ``worker``, ``engine process``, ``job server``, ``memory``,
        ``network buffers``, ``slots`` or ``cancelled``."""
        super().__init__(
            f"{job.engine} did not finish the job {job.name}: {cause}; {use}",
            setting="beam.runner",
            value=job.engine.lower(),
            suggestion=use,
        )
        self.fault = fault


def explain(
    error: BaseException, job: Job, ran_out_of_memory: Callable[[str], bool]
) -> EngineError | None:
    """The cause of a failed job; None if it is an exception in the code of a step.

    Args:
        ran_out_of_memory: tells why a job server of this process has ended, by its address.
    """
    text = str(error)
    if "Traceback (most recent call last)" in text:
        return None
    lost = type(error).__module__.partition(".")[0] == "grpc" or "StatusCode.UNAVAILABLE" in text
    if lost and ran_out_of_memory(job.endpoint):
        cause = "Java, which runs the job server, ran out of memory"
        use = f"set --job_server_jvm_properties=-Xmx2g, or more, in beam.args; then {_AGAIN}"
        return EngineError(job, "memory", cause, use)
    if lost:
        cause = f"the job server {job.endpoint} does not answer, or has ended"
        return EngineError(job, "job server", cause, f"start it, then {_AGAIN}")
    if job.rest and (found := _said_by_flink(job)):
        text += found
    for fault, pattern, cause, use in _CAUSES:
        if re.search(pattern, text):
            return EngineError(job, fault, cause, use)
    if "failed in state CANCELLED" in text:
        return EngineError(job, "cancelled", "it was cancelled on the engine", _AGAIN)
    return None


def _said_by_flink(job: Job) -> str:
    flink = FlinkRest(job.rest)
    try:
        found = flink.find(job.name)
        return flink.root_cause(found) if found else ""
    except OSError:
        return ""


class _Handle(portable_runner.JobServiceHandle):
    """Beam's client of a job server, which notes that it sends the job."""

    following: Following

    def run(self, preparation_id: str) -> Any:
        self.following.sending()
        return super().run(preparation_id)


class _ToItsEnd(portable_runner.PortableRunner, abc.ABC):
    """A base class before Beam's runner: a pipeline's ``run`` returns after the end of the job."""

    engine: str

    def __init__(self) -> None:
        super().__init__()
        self.timeout: float | None = None
        """Seconds that a job may take; None: no limit, and the first job follows a probe."""
        self._following: Following | None = None

    def run_portable_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Runs the job.

        Raises:
            EngineError: the engine, not the code of a step, ended the job.
            KeyboardInterrupt: after SIGINT or SIGTERM; the job is cancelled.
        """
        if self.timeout is None:
            probe.check_once(type(self), options)
        named = options.view_as(GoogleCloudOptions)
        named.job_name = f"{named.job_name or 'stagecraft'}-{uuid.uuid4().hex[:8]}"
        job = self._job(options)
        self._following = Following(job)
        submit = functools.partial(super().run_portable_pipeline, pipeline, options)
        try:
            return self._following.run(submit, self.timeout)
        except Exception as error:
            if explained := explain(error, job, ran_out_of_memory):
                raise explained from error
            raise

    def default_environment(self, options: PipelineOptions) -> Any:
        """Beam's environment without this process's packages: ``pip freeze`` takes seconds."""
        options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
        return super().default_environment(options)

    def create_job_service_handle(self, job_service: Any, options: PipelineOptions) -> Any:
        """Beam's handle, which notes that it sends the job."""
        stock = super().create_job_service_handle(job_service, options)
        assert self._following
        handle = _Handle(job_service, options, stock._retain_unknown_options)
        handle.following = self._following
        return handle

    def default_job_server(self, options: PipelineOptions) -> Any:
        """Our own job server, or Beam's client that needs none."""
        return self._own_server(options) or super().default_job_server(options)

    @abc.abstractmethod
    def _own_server(self, options: PipelineOptions) -> JavaServer | None:
        """The job server of this process; None: the client writes the job's JAR file itself."""

    def _job(self, options: PipelineOptions) -> Job:
        name = options.view_as(GoogleCloudOptions).job_name
        endpoint = options.view_as(PortableOptions).job_endpoint
        if endpoint:
            return Job(name, self.engine, "" if endpoint == "embed" else endpoint)
        server = self._own_server(options)
        return Job(name, self.engine, server.endpoint if server else "")


class FlinkRunner(_ToItsEnd, flink_runner.FlinkRunner):
    """Runs jobs on Flink."""

    engine = "Flink"

    def _own_server(self, options: PipelineOptions) -> JavaServer | None:
        flink = options.view_as(FlinkRunnerOptions)
        flink.flink_master = self.add_http_scheme(flink.flink_master)
        inside = flink.flink_master in flink_runner.MAGIC_HOST_NAMES
        if flink.flink_submit_uber_jar and not inside:
            return None
        configuration = FLINK_CONFIGURATION if inside else None
        return shared(flink_runner.FlinkJarJobServer(options), _key(options, flink), configuration)

    def _job(self, options: PipelineOptions) -> Job:
        job = super()._job(options)
        master = self.add_http_scheme(options.view_as(FlinkRunnerOptions).flink_master)
        if master not in flink_runner.MAGIC_HOST_NAMES:
            return dataclasses.replace(job, rest=master)
        if options.view_as(PortableOptions).job_endpoint:
            return job
        server = self._own_server(options)
        return dataclasses.replace(job, rest=server.rest if server else "", dies_with_server=True)


class SparkRunner(_ToItsEnd, spark_runner.SparkRunner):
    """Runs jobs on Spark."""

    engine = "Spark"

    def _own_server(self, options: PipelineOptions) -> JavaServer | None:
        spark = options.view_as(SparkRunnerOptions)
        if spark.spark_submit_uber_jar:
            return None
        return shared(spark_runner.SparkJarJobServer(options), _key(options, spark))

    def _job(self, options: PipelineOptions) -> Job:
        job = super()._job(options)
        master = options.view_as(SparkRunnerOptions).spark_master_url
        own = not options.view_as(PortableOptions).job_endpoint
        inside = re.match(spark_runner.LOCAL_MASTER_PATTERN, master) is not None
        return dataclasses.replace(job, dies_with_server=own and inside)


def _key(options: PipelineOptions, engine: PipelineOptions) -> str:
    """The options on which a job server depends."""
    return f"{engine} {options.view_as(JobServerOptions)}"
