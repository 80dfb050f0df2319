"""The processes that train together: the one reader and writer of ``TF_CONFIG``::

    {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]},
     "task": {"type": "worker", "index": 0}}

A launcher sets it for each process. See
https://www.tensorflow.org/guide/distributed_training#TF_CONFIG. This module checks the JSON,
because TensorFlow raises KeyErrors on mistakes, or waits for a peer that does not exist. Imports no
TensorFlow, except for :func:`resolver`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.parallel.settings import ParallelSettings

ROLES = ("chief", "worker", "ps", "evaluator")
"""Roles of a process. An evaluator watches checkpoints and does not train."""

_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """All processes, and the place of this one."""

    role: str
    """One of :data:`ROLES`."""
    index: int
    """Index of this process among those of its role."""
    workers: tuple[str, ...]
    """Addresses ``host:port`` of those that train: the chief, if there is one, first."""
    ps: tuple[str, ...]
    has_chief: bool
    """Whether a process has the role chief; if none has, worker 0 is the chief."""

    def peers(self) -> dict[str, str]:
        """Name, such as ``worker 1``, to address, of all processes."""
        chief = {"chief 0": self.workers[0]} if self.has_chief else {}
        workers = {f"worker {i}": address for i, address in enumerate(self.remote_workers)}
        return chief | workers | {f"ps {i}": address for i, address in enumerate(self.ps)}

    @property
    def address(self) -> str:
        """Address of this process; an evaluator has none."""
        return self.peers()[f"{self.role} {self.index}"]

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief, or worker 0 of a cluster without one."""
        return self.worker == 0

    @property
    def worker(self) -> int | None:
        """This process's place in ``workers``; None for a ps and an evaluator."""
        if self.role == "chief":
            return 0
        return self.index + self.has_chief if self.role == "worker" else None

    @property
    def remote_workers(self) -> tuple[str, ...]:
        """``workers`` without the chief, who schedules their steps (parameter_server)."""
        return self.workers[self.has_chief :]


def read() -> Cluster | None:
    """Reads ``TF_CONFIG``; None: it is unset, empty or ``{}``.

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
    """TensorFlow's reader of ``TF_CONFIG``, which has to be set; raises as :func:`read`."""
    _checked()

    import tensorflow as tf

    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def in_step(parallel: ParallelSettings) -> Cluster | None:
    """The cluster of workers that take each step together; with one, ``TF_CONFIG`` may be unset."""
    cluster = read()
    if cluster is None:
        if parallel.workers == 1:
            return None
        raise TFConfigError(
            f"unset, but parallel.workers: {parallel.workers} needs it in each process",
            f"a value such as {_EXAMPLE} in each process, or parallel.workers: 1",
        )
    if not cluster.workers:
        raise TFConfigError(
            f'cluster has no "worker", but parallel.strategy: {parallel.strategy} trains on '
            "workers",
            '"worker": ["host0:2222", "host1:2222"]',
        )
    if cluster.ps:
        raise TFConfigError(
            f'cluster has "ps" {list(cluster.ps)}, but parallel.strategy: {parallel.strategy} has '
            "no parameter servers",
            "a cluster without ps, or parallel.strategy: parameter_server",
        )
    check_count("workers", len(cluster.workers), parallel.workers)
    return cluster


def check_count(setting: str, count: int, wanted: int) -> None:
    """Refuses a cluster of other sizes than the settings' ``workers`` or ``ps``."""
    if count != wanted:
        noun = setting if setting == "ps" or count > 1 else setting.rstrip("s")
        raise SettingError(
            f"parallel.{setting}",
            wanted,
            f"does not match TF_CONFIG, which has {count} {noun}",
            f"parallel.{setting}: {count}, or a TF_CONFIG with {wanted}",
        )


def is_set() -> bool:
    """Whether ``TF_CONFIG`` is set and not empty."""
    return os.environ.get("TF_CONFIG", "").strip() not in ("", "{}")


def training(parallel: ParallelSettings) -> Cluster | None:
    """The cluster that a training with these settings is part of; None: it is one process."""
    return parallel.found.cluster(parallel)


def check(parallel: ParallelSettings) -> None:
    """Refuses, by a UserError, a ``TF_CONFIG`` that does not fit the settings.

    Ignores ``TF_CONFIG`` if the Trainer starts the processes.
    """
    joins = parallel.launcher == "in_process" or (parallel.launcher == "auto" and is_set())
    if joins and not is_evaluator(parallel):
        training(parallel)


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


def _checked() -> dict[str, Any]:
    """The checked value; removes from the variable what TensorFlow does not support."""
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TFConfigError(
            f"not JSON ({error}), found {text!r:.80}", f"a value such as {_EXAMPLE}"
        ) from None
    if not isinstance(config, dict):
        found = f"expected an object, found {text!r:.80}"
        raise TFConfigError(found, f"a value such as {_EXAMPLE}")
    _check_jobs(config.get("cluster"))
    _check_task(config.get("task"), config["cluster"])
    if config["cluster"].pop("evaluator", None):
        # TensorFlow's servers would wait for the evaluator. Kubeflow's operator adds it to the
        # cluster (genClusterSpec in pkg/controller.v1/tensorflow/tensorflow.go).
        os.environ["TF_CONFIG"] = json.dumps(config)
    return config


def _check_jobs(jobs: Any) -> None:
    if not isinstance(jobs, dict) or not jobs:
        raise TFConfigError(f'"cluster" is {jobs!r:.80}', f"a value such as {_EXAMPLE}")
    seen: dict[str, str] = {}
    for job, addresses in jobs.items():
        if job not in ROLES:
            raise TFConfigError(
                f"unknown role {job!r} in the cluster", f"any of {', '.join(ROLES)}"
            )
        if not isinstance(addresses, list):
            raise TFConfigError(
                f'cluster: "{job}" is {addresses!r:.80}', f'"{job}": ["host0:2222"]'
            )
        if job == "chief" and len(addresses) > 1:
            raise TFConfigError(
                f"cluster has {len(addresses)} processes of the role chief",
                f'"chief": ["{addresses[0]}"], and the others in "worker"',
            )
        for address in addresses:
            _check_address(address, job)
            if address in seen:
                raise TFConfigError(
                    f"cluster has the address {address} twice (in {seen[address]} and {job})",
                    "an address of its own for each process",
                )
            seen[address] = job


def _check_address(address: Any, job: str) -> None:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        example = f"{host or address}:2222" if isinstance(address, str) else "host0:2222"
        raise TFConfigError(
            f"cluster: the address {address!r:.80} of the role {job!r} is not host:port with a "
            "port from 1 to 65535",
            f"an address such as {example}",
        )


def _check_task(task: Any, jobs: dict[str, list[str]]) -> None:
    if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise TFConfigError(f'"task" is {task!r:.80}', '"task": {"type": "worker", "index": 0}')
    role, index = task["type"], task["index"]
    if role not in ROLES:
        raise TFConfigError(
            f'task: unknown role "type": {role!r:.80}', f"any of {', '.join(ROLES)}"
        )
    count = len(jobs.get(role, [])) or int(role == "evaluator")  # which needs no address
    if not count:
        raise TFConfigError(
            f'task has "type": "{role}", but the cluster has no {role}',
            f"any of {', '.join(jobs)}",
        )
    # Some launchers write the index as text, and TensorFlow takes that.
    if isinstance(index, bool) or not str(index).isdecimal() or int(index) >= count:
        raise TFConfigError(
            f'task has "index": {index!r:.80}, but the cluster has {count} '
            f"process{'es' if count > 1 else ''} of the role {role}",
            f'"index": 0{f" to {count - 1}" if count > 1 else ""}',
        )


class TFConfigError(UserError):
    """``TF_CONFIG`` is wrong, or does not fit the settings: the problem, and what works."""

    def __init__(self, problem: str, use: str):
        super().__init__(
            f"environment variable TF_CONFIG: {problem}; use {use}",
            setting="TF_CONFIG",
            suggestion=use,
        )


@dataclasses.dataclass(frozen=True)
class Role:
    """One process."""

    name: str
    tf_config: str | None = None
    """Its ``TF_CONFIG``; None: it is the only process."""
    serves: bool = False
    """Whether it works for a chief, and never ends by itself."""

    @property
    def job(self) -> str:
        """``chief``, ``worker``, ``ps`` or ``evaluator``; ``process`` of the only one."""
        return self.name.partition(" ")[0]


def jobs(parallel: ParallelSettings) -> dict[str, int]:
    """Processes of each job, the chief's first; empty: there is one process."""
    counts = parallel.found.processes(parallel)
    return {**(counts or {"chief": 1}), "evaluator": 1} if parallel.evaluator else counts


def roles(parallel: ParallelSettings, addresses: Sequence[str] | None = None) -> list[Role]:
    """The processes of a topology, the chief's first.

    ``addresses``: ``host:port`` of each process; None: free ports of this host.
    """
    counts = jobs(parallel)
    if not counts:
        return [Role("process")]
    if addresses is None:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(sum(counts.values()))]
    serves = parallel.found.serves
    left = iter(addresses)
    cluster = {job: [next(left) for _ in range(count)] for job, count in counts.items()}
    # TensorFlow's servers would wait for it, and need not.
    cluster.pop("evaluator", None)
    return [
        Role(
            f"{job} {index}",
            json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
            serves=job in serves,
        )
        for job, count in counts.items()
        for index in range(count)
    ]


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def adopt_job(flat: Mapping[str, Any]) -> None:
    """Makes ``TF_CONFIG``, if it is unset, from the environment of a pod of an Indexed Job.

    A pod's place, in the order of :func:`jobs`, is ``JOB_COMPLETION_INDEX``. Behind a headless
    service, the first part of its host name ends in that number, like those of its peers
    (https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/). They listen on
    ``STAGECRAFT_PORT``, by default 2222.
    """
    index = os.environ.get("JOB_COMPLETION_INDEX")
    if is_set() or index is None:
        return
    prefix = "parallel_"
    parallel = ParallelSettings.model_validate(
        {name.removeprefix(prefix): flat[name] for name in flat if name.startswith(prefix)}
    )
    count = sum(jobs(parallel).values())
    if not count:
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
