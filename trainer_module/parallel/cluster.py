"""The place of a process in its cluster, by the settings and ``TF_CONFIG``."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.parallel.roles import jobs, roles
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.tf_config import (
    ROLES,
    Cluster,
    TFConfigError,
    is_set,
    read,
    resolver,
)

__all__ = [
    "ROLES",
    "Cluster",
    "adopt_job",
    "check",
    "is_evaluator",
    "is_set",
    "read",
    "resolver",
    "training",
]


def check(parallel: ParallelSettings) -> None:
    """Refuses, by a UserError, a ``TF_CONFIG`` that does not fit the settings.

    Imports no TensorFlow. Ignores ``TF_CONFIG`` if the Trainer starts the processes.
    """
    joins = parallel.launcher == "in_process" or (parallel.launcher == "auto" and is_set())
    if joins and not is_evaluator(parallel):
        training(parallel)


def training(parallel: ParallelSettings) -> Cluster | None:
    """The cluster that a training with these settings is part of; None: it is one process."""
    return strategy.find(parallel.strategy).cluster(parallel)


def is_evaluator(parallel: ParallelSettings) -> bool:
    """Whether this process is the evaluator of the others."""
    try:  # strategies of one process ignore a wrong one
        role = json.loads(os.environ.get("TF_CONFIG", ""))["task"]["type"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    if role != "evaluator":
        return False
    read()
    if not parallel.evaluator:
        raise TFConfigError(
            "this process is the evaluator, but parallel.evaluator is false",
            'parallel.evaluator: true, or a task of "type": "worker"',
        )
    return True


def adopt_job(flat: Mapping[str, Any]) -> None:
    """Makes ``TF_CONFIG``, if it is unset, from the environment of a pod of an Indexed Job.

    A pod's place, in the order of ``roles.jobs``, is ``JOB_COMPLETION_INDEX``. Behind a headless
    service, the first part of its host name ends in that number, like those of its peers
    (https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/). They listen on
    ``STAGECRAFT_PORT``, by default 2222.
    """
    index = os.environ.get("JOB_COMPLETION_INDEX")
    prefix = "parallel_"
    parallel = ParallelSettings.model_validate(
        {name.removeprefix(prefix): flat[name] for name in flat if name.startswith(prefix)}
    )
    count = sum(jobs(parallel).values())
    if is_set() or index is None or not count:
        return
    if not index.isdecimal() or int(index) >= count:
        raise UserError(
            f"environment variable JOB_COMPLETION_INDEX: {index!r}, but the topology has {count} "
            f"processes; use completions: {count} and parallelism: {count} in the Job"
        )
    first, dot, rest = socket.getfqdn().partition(".")
    stem, dash, last = first.rpartition("-")
    if not dash or last != index:
        raise UserError(
            f"the name of this host is {first}, but JOB_COMPLETION_INDEX is {index}; expected a "
            f"name that ends in -{index}; use completionMode: Indexed, and a subdomain in the "
            "Job's pods"
        )
    port = os.environ.get("STAGECRAFT_PORT", "2222")
    hosts = [f"{stem}-{number}{dot}{rest}:{port}" for number in range(count)]
    os.environ["TF_CONFIG"] = roles(parallel, hosts)[int(index)].tf_config or ""
