"""Explains why a job on an engine failed. Imports no Beam."""

from __future__ import annotations

import re
from collections.abc import Callable

from stagecraft.common.errors import TransientError
from stagecraft.pipeline.beam.engines.flink_rest import FlinkRest
from stagecraft.pipeline.beam.engines.jobs import Job

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
