"""The processes that train together: the one reader of ``TF_CONFIG``.

``TF_CONFIG`` is an environment variable that Kubeflow's TFJob, Vertex AI or a person sets in
every process (https://www.tensorflow.org/guide/distributed_training#TF_CONFIG)::

    {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]},
     "task": {"type": "worker", "index": 0}}

Its JSON is checked here, because TensorFlow's reader answers mistakes with a KeyError, or
with waiting for a peer that does not exist.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel.roles import jobs, roles
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

ROLES = ("chief", "worker", "ps", "evaluator")
"""What a process can be. An evaluator watches checkpoints and has no part in training."""

_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """All processes, and which of them this one is."""

    role: str
    """One of :data:`ROLES`."""

    index: int
    """Among the processes of this role."""

    workers: tuple[str, ...]
    """Addresses ``host:port`` of those that train in step: the chief, if there is one, first."""

    ps: tuple[str, ...]
    """Addresses of the parameter servers."""

    has_chief: bool
    """Whether there is a process of the role chief; else worker 0 does what a chief does."""

    def peers(self) -> dict[str, str]:
        """Name, such as ``worker 1``, to address, of all processes."""
        chief = {"chief 0": self.workers[0]} if self.has_chief else {}
        workers = {f"worker {i}": address for i, address in enumerate(self.remote_workers)}
        return chief | workers | {f"ps {i}": address for i, address in enumerate(self.ps)}

    @property
    def address(self) -> str:
        """This process's own, of one that is no evaluator."""
        return self.peers()[f"{self.role} {self.index}"]

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief, or worker 0 where there is none."""
        return self.role == "chief" or (
            self.role == "worker" and self.index == 0 and not self.has_chief
        )

    @property
    def worker(self) -> int | None:
        """This process's place in ``workers``; None for a ps and an evaluator."""
        if self.role == "chief":
            return 0
        return self.index + self.has_chief if self.role == "worker" else None

    @property
    def remote_workers(self) -> tuple[str, ...]:
        """``workers`` without the chief: those that a chief sends steps to (parameter_server)."""
        return self.workers[self.has_chief :]


def read() -> Cluster | None:
    """What ``TF_CONFIG`` says; None where it is unset, empty or ``{}``.

    Raises:
        UserError: it is not JSON, not as above, or contradicts itself.
    """
    if not is_set():
        return None
    config = _checked()
    jobs = config["cluster"]
    chief = jobs.get("chief", [])
    return Cluster(
        role=config["task"]["type"],
        index=int(config["task"]["index"]),
        workers=(*chief, *jobs.get("worker", [])),
        ps=tuple(jobs.get("ps", [])),
        has_chief=bool(chief),
    )


def resolver() -> Any:
    """``TF_CONFIG``, which has to be set, as TensorFlow's servers and strategies take it.

    Returns:
        A ``tf.distribute.cluster_resolver.TFConfigClusterResolver``.

    Raises:
        UserError: as :func:`read`.
    """
    _checked()

    import tensorflow as tf

    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def check(parallel: ParallelSettings) -> None:
    """Refuses a ``TF_CONFIG`` that a training with these settings could not be part of.

    Imports no TensorFlow. ``TF_CONFIG`` is no matter where the Trainer starts the processes.

    Raises:
        UserError: as :func:`training`.
    """
    joins = parallel.launcher == "in_process" or (parallel.launcher == "auto" and is_set())
    if joins and not is_evaluator(parallel):
        training(parallel)


def _checked() -> dict[str, Any]:
    """What the variable holds, as TensorFlow takes it; the variable is made to be so, too."""
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _error(f"not JSON ({error}), found {text!r:.80}", f"such as {_EXAMPLE}") from None
    if not isinstance(config, dict):
        raise _error(f"expected an object, found {text!r:.80}", f"such as {_EXAMPLE}")
    _check_jobs(config.get("cluster"))
    _check_task(config.get("task"), config["cluster"])
    if config["cluster"].pop("evaluator", None):
        # Nobody talks to it, and TensorFlow's servers would wait for it. Kubeflow's operator has
        # it in the cluster (genClusterSpec in pkg/controller.v1/tensorflow/tensorflow.go).
        os.environ["TF_CONFIG"] = json.dumps(config)
    return config


def is_set() -> bool:
    """Whether ``TF_CONFIG`` says anything."""
    return os.environ.get("TF_CONFIG", "").strip() not in ("", "{}")


def training(parallel: ParallelSettings) -> Cluster | None:
    """The cluster that a training with these settings is part of.

    None under the strategies of one process and a grid of one worker, which leave ``TF_CONFIG``
    alone, and for ``multi_worker_mirrored`` with one worker where it is unset.

    Raises:
        UserError: ``TF_CONFIG`` is not as it should be or does not fit the settings.
    """
    of_grid = parallel.strategy == "grid" and parallel.workers > 1
    if parallel.strategy == "multi_worker_mirrored" or of_grid:
        return _in_step(parallel)
    if parallel.strategy == "parameter_server":
        return _by_a_chief(parallel)
    return None


def _in_step(parallel: ParallelSettings) -> Cluster | None:
    cluster = read()
    if cluster is None:
        if parallel.workers == 1:
            return None
        raise _error(
            f"unset, but parallel.workers: {parallel.workers} processes are to train together",
            f"such as {_EXAMPLE} in each of them, or parallel.workers: 1",
        )
    if not cluster.workers:
        raise _error(
            f'cluster has no "worker", but strategy: {parallel.strategy} trains on workers',
            '"worker": ["host0:2222", "host1:2222"]',
        )
    if cluster.ps:
        raise _error(
            f'cluster has "ps" {list(cluster.ps)}, which strategy: {parallel.strategy} has no use '
            "for",
            "a cluster without ps, or strategy: parameter_server",
        )
    _check_count(len(cluster.workers), parallel.workers)
    return cluster


def _by_a_chief(parallel: ParallelSettings) -> Cluster:
    example = '{"chief": ["host0:2222"], "worker": ["host1:2222"], "ps": ["host2:2222"]}'
    cluster = read()
    if cluster is None:
        raise _error(
            "unset, but strategy: parameter_server is a chief, workers and parameter servers",
            f'"cluster": {example} and a "task" in each of them',
        )
    for job, there in (
        ("chief", cluster.has_chief),
        ("worker", cluster.remote_workers),
        ("ps", cluster.ps),
    ):
        if not there:
            raise _error(
                f'cluster has no "{job}", but strategy: parameter_server is a chief, workers and '
                "parameter servers",
                f'"cluster": {example}',
            )
    _check_count(len(cluster.remote_workers), parallel.workers)
    if len(cluster.ps) != parallel.ps:
        raise UserError(
            f"parallel.ps: {parallel.ps}, but TF_CONFIG has {len(cluster.ps)}; use parallel.ps: "
            f"{len(cluster.ps)}, or a TF_CONFIG with {parallel.ps}"
        )
    return cluster


def is_evaluator(parallel: ParallelSettings) -> bool:
    """Whether this process evaluates what the others train.

    Raises:
        UserError: ``TF_CONFIG`` is not as it should be, or has an evaluator and the settings none.
    """
    try:  # whatever is wrong with it is no matter to those who have no use for it
        role = json.loads(os.environ.get("TF_CONFIG", ""))["task"]["type"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    if role != "evaluator":
        return False
    read()
    if not parallel.evaluator:
        raise _error(
            "this process is the evaluator, and parallel.evaluator is false: the others evaluate "
            "by themselves",
            'parallel.evaluator: true, or a task of "type": "worker"',
        )
    return True


def adopt_job(flat: Mapping[str, Any]) -> None:
    """Makes ``TF_CONFIG`` from what Kubernetes tells a pod of an Indexed Job, where it is unset.

    The job's pods are the topology's processes in the order of ``roles.jobs``. A pod has its
    place in ``JOB_COMPLETION_INDEX`` and, behind a headless service, a host name that ends its
    first part in that number, as its peers' do
    (https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/). They listen on
    ``STAGECRAFT_PORT``, by default 2222.

    Args:
        flat: the training's settings.

    Raises:
        UserError: the variables are not as they should be.
    """
    index = os.environ.get("JOB_COMPLETION_INDEX")
    parallel = TrainingSettings.from_flat(dict(flat)).parallel
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
            f"this host's name is {first}, and JOB_COMPLETION_INDEX {index}: expected a name that "
            f"ends in -{index}; use completionMode: Indexed, and a subdomain in the Job's pods"
        )
    port = os.environ.get("STAGECRAFT_PORT", "2222")
    hosts = [f"{stem}-{number}{dot}{rest}:{port}" for number in range(count)]
    os.environ["TF_CONFIG"] = roles(parallel, hosts)[int(index)].tf_config or ""


def _check_count(there: int, wanted: int) -> None:
    if there != wanted:
        raise UserError(
            f"parallel.workers: {wanted}, but TF_CONFIG has {there} "
            f"worker{'s' if there > 1 else ''}; use parallel.workers: {there}, or a TF_CONFIG "
            f"with {wanted}"
        )


def _check_jobs(jobs: Any) -> None:
    if not isinstance(jobs, dict) or not jobs:
        raise _error(f'"cluster" is {jobs!r:.80}', f"such as {_EXAMPLE}")
    seen: dict[str, str] = {}
    for job, addresses in jobs.items():
        if job not in ROLES:
            raise _error(f"unknown role {job!r} in the cluster", f"any of {', '.join(ROLES)}")
        if not isinstance(addresses, list):
            raise _error(f'cluster: "{job}" is {addresses!r:.80}', f'"{job}": ["host0:2222"]')
        if job == "chief" and len(addresses) > 1:
            raise _error(
                f"cluster has {len(addresses)} of the role chief",
                f'"chief": ["{addresses[0]}"], and the others in "worker"',
            )
        for address in addresses:
            _check_address(address, job)
            if address in seen:
                raise _error(
                    f"cluster has the address {address} twice (in {seen[address]} and {job})",
                    "an address of its own for each process",
                )
            seen[address] = job


def _check_address(address: Any, job: str) -> None:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        example = f"{host or address}:2222" if isinstance(address, str) else "host0:2222"
        raise _error(
            f"cluster: {address!r:.80} of {job} is no host:port with a port of 1 to 65535",
            f"such as {example}",
        )


def _check_task(task: Any, jobs: dict[str, list[str]]) -> None:
    if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise _error(f'"task" is {task!r:.80}', '"task": {"type": "worker", "index": 0}')
    role, index = task["type"], task["index"]
    if role not in ROLES:
        raise _error(f'task: unknown role "type": {role!r:.80}', f"any of {', '.join(ROLES)}")
    there = len(jobs.get(role, []))
    if role == "evaluator" and not there:
        there = 1  # needs no address: nobody talks to it
    if not there:
        raise _error(
            f'task has "type": "{role}", but the cluster has no {role}',
            f"any of {', '.join(jobs)}",
        )
    # Some launchers write the index as text, and TensorFlow takes that.
    if isinstance(index, bool) or not str(index).isdecimal() or int(index) >= there:
        raise _error(
            f'task has "index": {index!r:.80}, but the cluster has {there} of the role {role}',
            f'"index": 0{f" to {there - 1}" if there > 1 else ""}',
        )


def _error(found: str, works: str) -> UserError:
    return UserError(f"environment variable TF_CONFIG: {found}; use {works}")
