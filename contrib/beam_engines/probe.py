"""A small job that shows, before a long one, whether the engine's workers can do their work.

It starts a worker, compares the versions of its packages with those of this process, and reads and
writes the pipeline root from there.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import importlib.metadata
import json
import logging
import platform
import posixpath
import re
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)
from apache_beam.runners import create_runner
from apache_beam.transforms.environments import PythonLoopbackEnvironment

import stagecraft
from stagecraft.common import secrets
from stagecraft.common.errors import UserError
from stagecraft.contrib.beam_engines.flink_rest import FlinkRest
from stagecraft.contrib.beam_engines.jobs import WorkerTimeoutError
from stagecraft.pipeline.beam.in_process import pipeline_root

WORKER_SECONDS = 180.0

_PACKAGES = ("apache-beam", "tfx", "tensorflow")
_FOUND = re.compile(r'stagecraft-probe(\{".*?\})end')

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_checked: set[str] = set()


class WorkerError(UserError):
    """Beam workers that cannot do the work of a step. ``value`` names their environment."""

    lacks: Mapping[str, str] = MappingProxyType({})
    """Name of a package, or ``root`` -> what the workers have."""


class StagecraftOptions(PipelineOptions):
    """Arguments of a pipeline that Beam does not know."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--worker_timeout",
            type=float,
            default=WORKER_SECONDS,
            help="seconds that the first worker of an engine may take to start",
        )


def check_once(runner: type, options: PipelineOptions) -> None:
    """Checks the workers of a process's first job; see :func:`check`."""
    if isinstance(runner().default_environment(options), PythonLoopbackEnvironment):
        return  # the worker is this process
    root = pipeline_root()
    key = f"{runner} {options.view_as(PortableOptions)} {root}"
    with _lock:
        if key not in _checked:
            check(runner, options, root)
            _checked.add(key)


def check_arguments(arguments: Sequence[str], root: str) -> dict[str, str]:
    """Checks the workers of pipeline arguments with a runner of ``job_server_runners.py``.

    Returns:
        The versions that workers and this process have in common.

    Raises:
        WorkerError: see :func:`check`.
    """
    options = PipelineOptions(list(arguments))
    runner = type(create_runner(options.view_as(StandardOptions).runner))
    check(runner, options, root)
    return versions()


def check(runner: type, options: PipelineOptions, root: str = "") -> None:
    """Runs the probe on a runner of ``job_server_runners.py``.

    Raises:
        WorkerError: TaskManagers share a pool, no worker starts in time, its versions differ, or it
            cannot read or write the pipeline root.
    """
    options = copy.deepcopy(options)
    options.view_as(FlinkRunnerOptions).parallelism = 1
    seconds = options.view_as(StagecraftOptions).worker_timeout
    engine = runner()
    engine.default_environment(options)  # notes LOOPBACK if that is its default
    environment, wanted = described(options), versions()
    _check_pool(options, environment)
    engine.timeout = seconds
    folder = posixpath.join(root, f".probe-{uuid.uuid4().hex[:8]}") if root else ""
    _log.info("starting a worker: %s", environment)
    try:
        if folder:
            FileSystems.mkdirs(folder)
            _write(posixpath.join(folder, "asked"), folder)
        with beam.Pipeline(runner=engine, options=options) as pipeline:
            _ = pipeline | beam.Impulse() | beam.ParDo(_Answer(wanted, folder))
        if folder:
            _check_answer(folder, environment, root)
    except WorkerTimeoutError as error:
        raise WorkerError(
            f"beam.args: no worker of the environment {environment} was ready within {seconds:g} s;"
            " it does not start (see its log), or the engine has no free slot; if it only needs "
            f"longer, use --worker_timeout={2 * seconds:g}",
            setting="beam.args",
            value=environment,
            suggestion=f"--worker_timeout={2 * seconds:g}",
        ) from error
    except RuntimeError as error:
        if lacks := _lacks(str(error)):
            problem = "; ".join(_problem(name, found, wanted) for name, found in lacks.items())
            refused = WorkerError(
                f"beam.args: workers of the environment {environment} {problem}",
                setting="beam.args",
                value=environment,
            )
            refused.lacks = lacks
            raise refused from error
        raise
    finally:
        if folder:
            with contextlib.suppress(Exception):
                FileSystems.delete([folder])


def _check_pool(options: PipelineOptions, environment: str) -> None:
    """Refuses a pool of several TaskManagers: all name their first worker 1-1, and a pool ends the
    worker of one when another one asks for it."""
    master, address = options.view_as(FlinkRunnerOptions).flink_master, environment.split(" ")[-1]
    if not environment.startswith("EXTERNAL") or ":" not in master:
        return
    try:
        hosts = FlinkRest.of(master).hosts()
    except OSError:  # only a job server reaches Flink
        return
    own = address.rpartition(":")[0] in ("localhost", "127.0.0.1", "[::1]")
    shared = max(collections.Counter(hosts if own else ["one"] * len(hosts)).values(), default=0)
    if shared > 1:
        use = "a pool of its own for each TaskManager, at the same port of another host"
        raise WorkerError(
            f"beam.args: {shared} TaskManagers share the worker pool {address}, which would end "
            f"workers of one for another; use {use}, or --environment_type=PROCESS",
            setting="beam.args",
            value=environment,
            suggestion=use,
        )


def versions() -> dict[str, str]:
    """Versions of Python (without the patch) and of the packages that workers need."""
    python = ".".join(platform.python_version_tuple()[:2])
    found = {"python": python, "stagecraft": stagecraft.__version__}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def described(options: PipelineOptions) -> str:
    """The environment of the workers, such as ``DOCKER image:1``, without secrets."""
    portable = options.view_as(PortableOptions)
    kind = portable.environment_type or "DOCKER"
    config = portable.environment_config or ""
    if config.startswith("{"):  # of PROCESS, with environment variables
        config = json.loads(config).get("command", "")
    shown = ("docker_container_image", "process_command", "external_service_address")
    given = [each.split("=", 1) for each in portable.environment_options or () if "=" in each]
    values = [config, *(value for name, value in given if name in shown)]
    return secrets.redact(" ".join([kind, *filter(None, values)]))


class _Answer(beam.DoFn):
    """Runs on the worker. A class of this module, because Python versions may differ: Beam pickles
    functions with their bytecode."""

    def __init__(self, wanted: dict[str, str], folder: str):
        self._wanted, self._folder = wanted, folder

    def process(self, element: bytes) -> Iterable[Any]:
        here = versions()
        lacks = {
            name: here.get(name, "none")
            for name, version in self._wanted.items()
            if here.get(name) != version
        }
        if self._folder:
            try:
                if _read(posixpath.join(self._folder, "asked")) == self._folder:
                    _write(posixpath.join(self._folder, "answer"), self._folder)
            except Exception as error:
                lacks["root"] = f"{type(error).__name__}: {error}"
        if lacks:  # the text of an exception reaches the client from every engine
            raise RuntimeError(f"stagecraft-probe{json.dumps(lacks)}end")
        return ()


def _lacks(text: str) -> dict[str, str]:
    """The part of the job's failure that is about the workers; empty: another failure."""
    if found := _FOUND.search(text):
        lacks: dict[str, str] = json.loads(found[1])
        return lacks
    missing = re.search(r"No module named '(\w+)", text)
    return {missing[1]: "none"} if missing else {}


def _problem(name: str, found: str, wanted: Mapping[str, str]) -> str:
    if name == "root":
        return f"cannot use the pipeline root ({found}); use storage that all machines share"
    return f"have {name} {found}, this process has {wanted.get(name, 'none')}"


def _check_answer(folder: str, environment: str, root: str) -> None:
    try:
        if _read(posixpath.join(folder, "answer")) == folder:
            return
    except Exception as error:
        _log.info("no answer of the worker: %s", error)
    raise WorkerError(
        f"--output: workers of the environment {environment} write to another {root} than this "
        "process reads; use storage that all machines share",
        setting="--output",
        value=root,
    )


def _write(path: str, text: str) -> None:
    with FileSystems.create(path) as file:
        file.write(text.encode())


def _read(path: str) -> str:
    with FileSystems.open(path) as file:
        content: bytes = file.read()
    return content.decode()
