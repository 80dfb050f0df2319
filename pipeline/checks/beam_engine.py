"""Checks of the engine that runs the data steps, for ``stagecraft doctor --beam``."""

from __future__ import annotations

import argparse
import contextlib
import logging
import socket
import time
from collections.abc import Iterator

from stagecraft.common.errors import UserError
from stagecraft.pipeline.beam import beam_args
from stagecraft.pipeline.beam.in_process import workers_are_elsewhere
from stagecraft.pipeline.checks.machine import Check
from stagecraft.pipeline.settings import BeamSettings

_ANSWER_SECONDS = 5.0
_SECONDS = 50.0
"""For all checks together, without the cancellation of a job."""

_PORTABLE = ("flink", "spark")
"""Runners that send jobs to a job server."""


def all_checks(settings: BeamSettings, root: str) -> Iterator[Check]:
    """All checks, quick ones first; none after a failure. ``root`` is the pipeline root."""
    deadline = time.monotonic() + _SECONDS
    arguments = beam_args(settings)
    yield (result := runner(settings, arguments))
    if settings.runner not in _PORTABLE:
        return
    endpoint = _option("job_endpoint", arguments)
    master = _option("flink_master", arguments)
    if endpoint:
        yield (result := job_server(endpoint))
    if result.verdict == "ok" and ":" in master:
        yield (result := flink(master))
    if result.verdict == "ok":
        yield worker(arguments, root, deadline)


def runner(settings: BeamSettings, arguments: list[str]) -> Check:
    """The runner, and whether its workers can be checked."""
    if settings.runner in _PORTABLE:
        return Check("runner", settings.runner)
    if workers_are_elsewhere(arguments):
        advice = "only a job on this runner shows whether its workers start"
        return Check("runner", settings.runner, "note", advice)
    return Check("runner", f"{settings.runner}: the data steps run in the process of the pipeline")


def job_server(endpoint: str) -> Check:
    """Whether Beam's job server answers, and what it is."""
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    advice = "start the job server, or correct --job_endpoint in beam.args"
    if problem := _unreachable(endpoint):
        return Check("job server", f"{endpoint}: {problem}", "missing", advice)
    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            jobs = stub.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=_ANSWER_SECONDS)
            options = stub.DescribePipelineOptions(
                beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=_ANSWER_SECONDS
            )
        except grpc.RpcError as error:
            found = f"{endpoint}: a server without Beam's job API ({error.code().name})"
            return Check("job server", found, "missing", advice)
    names = {option.name for option in options.options}
    engine = "Flink" if "flink_master" in names else "Spark" if "spark_master" in names else "Beam"
    return Check("job server", f"{endpoint}: of {engine}, {len(jobs.job_info)} jobs so far")


def flink(master: str) -> Check:
    """Whether Flink's REST API answers, and its version."""
    from stagecraft.contrib.beam_engines.flink_rest import FlinkRest

    advice = "start Flink, or correct --flink_master in beam.args"
    rest = FlinkRest.of(master)
    try:
        overview = rest.overview()
        free, total = overview["slots-available"], overview["slots-total"]
        found = f"{rest.address}: Flink {overview['flink-version']}, {free} of {total} slots free"
    except (OSError, ValueError, KeyError, TypeError) as error:
        cause = type(error).__name__
        return Check("flink", f"{rest.address}: no answer of Flink ({cause})", "missing", advice)
    return Check("flink", found)


def worker(arguments: list[str], root: str, deadline: float) -> Check:
    """Whether a worker starts, and reads and writes the pipeline root."""
    from stagecraft.components.object_store import beam_worker
    from stagecraft.contrib.beam_engines import probe

    assert beam_worker  # this process opens the root, too
    started = time.monotonic()
    timeout = f"--worker_timeout={max(deadline - started, _ANSWER_SECONDS):.0f}"
    try:
        with _no_logs():  # they repeat the error
            versions = probe.check_arguments([*arguments, timeout], root)
    except UserError as error:
        return Check("worker", "no worker can do the work of a step", "missing", str(error))
    except Exception as error:  # of Beam or of the engine
        lines = [line for line in str(error).splitlines() if line.strip()]
        advice = f"{type(error).__name__}: {lines[-1].strip() if lines else 'no message'}"
        return Check("worker", "the engine refuses a small job", "missing", advice)
    seconds = time.monotonic() - started
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Check("worker", f"reads and writes {root}, after {seconds:.0f} s: {shown}")


@contextlib.contextmanager
def _no_logs() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _unreachable(endpoint: str) -> str:
    """Why nothing answers at ``HOST:PORT``; empty if something does."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        return "is not HOST:PORT"
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        return f"no answer ({error.strerror or error})"
    return ""


def _option(name: str, arguments: list[str]) -> str:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument(f"--{name}", dest="value", default="")
    value: str = parser.parse_known_args(arguments)[0].value
    return value
