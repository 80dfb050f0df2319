"""Beam's runner in this process, its pipeline root, and what differs for workers elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence

IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
"""Beam's Python runner, by its full name, which means the same in all versions. In newer versions,
``DirectRunner`` first downloads the binary of another runner (Prism), and falls back to this one
without a message."""

_HERE = frozenset({"", IN_PROCESS, "DirectRunner", "BundleBasedDirectRunner", "FnApiRunner"})

_MODES_HERE = frozenset({"", "in_memory", "multi_threading"})

# These runners start an engine in the job server by default, and then use LOOPBACK by default.
_WITH_LOCAL_ENGINES = ("FlinkRunner", "SparkRunner")
_LOCAL_ENGINE = re.compile(r"|\[(local|auto)\]|local(\[.+\])?")

_ADDED = (
    "--beam_plugin=stagecraft.components.object_store.beam_worker",
    # Otherwise, Beam stages the list of installed packages for each job. A job server can pass
    # files on only if all its workers see its folder.
    "--experiments=disable_logging_submission_environment",
)

_root = ""


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Makes a bare ``beam.Pipeline()``, as in TFX's executors, run in this process in the block.

    Its state cache would visit all objects of all modules to compute its size, and save nothing.
    """
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    runner, cache = StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB
    StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB = IN_PROCESS, 0
    try:
        yield
    finally:
        StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB = runner, cache


def pipeline_root() -> str:
    """The pipeline root of the run in this process; empty outside :func:`rooted`."""
    return _root


@contextlib.contextmanager
def rooted(root: str) -> Iterator[None]:
    """Makes the first job of the block check the pipeline root."""
    global _root
    before, _root = _root, root
    try:
        yield
    finally:
        _root = before


def workers_are_elsewhere(arguments: Sequence[str]) -> bool:
    """Whether Beam's pipeline arguments place the workers outside the process of the executor."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--runner", default="")
    parser.add_argument("--environment_type", default="")
    parser.add_argument("--flink_master", "--spark_master_url", dest="master", default="")
    found, _ = parser.parse_known_args(list(arguments))
    if found.runner in _HERE:
        return False
    if not found.environment_type and found.runner.endswith(_WITH_LOCAL_ENGINES):
        return _LOCAL_ENGINE.fullmatch(found.master) is None
    return bool(found.environment_type != "LOOPBACK")


def run_in_one_process(arguments: Sequence[str]) -> bool:
    """Whether Beam's Python runner runs the pipelines of these arguments, in this process alone."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--runner", default="")
    parser.add_argument("--direct_running_mode", default="")
    found, _ = parser.parse_known_args(list(arguments))
    return found.runner in _HERE and found.direct_running_mode in _MODES_HERE


def runs_elsewhere(class_path: str, arguments: Sequence[str]) -> bool:
    """Whether workers elsewhere run the Beam pipelines of an executor; imports TFX.

    They have no access to local copies of its inputs and outputs.
    """
    if not workers_are_elsewhere(arguments):
        return False
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.utils import import_utils

    return issubclass(import_utils.import_class_by_path(class_path), BaseBeamExecutor)


def for_workers(arguments: Sequence[str]) -> list[str]:
    """The arguments, and what workers elsewhere need: file systems for ``minio://`` and ``s3://``."""
    added = _ADDED if workers_are_elsewhere(arguments) else ()
    return [*arguments, *(each for each in added if each not in arguments)]
