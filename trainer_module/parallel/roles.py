"""The processes of a topology and the ``TF_CONFIG`` of each. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
from collections.abc import Sequence

from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.parallel.settings import ParallelSettings


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
    counts = strategy.find(parallel.strategy).processes(parallel)
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
    serves = strategy.find(parallel.strategy).serves
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
