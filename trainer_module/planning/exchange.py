"""How long devices take to add up their gradients: a ring over the links, and over the network.

Each worker counts as a host. Of N devices in a ring, each sends and receives ``2 (N - 1) / N`` of
what is summed (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", section 2). Every stage has a ring of its own over all of its replicas: inside a host
each ring has links to itself, so the largest stage takes longest; between hosts all rings share
the host's network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.trainer_module.settings import ParallelSettings


class Links(NamedTuple):
    """Bytes a second in one direction; infinite: not known, and not counted."""

    devices: float = math.inf
    """Between devices of a host."""
    hosts: float = math.inf
    """Of a host, to all others."""


def seconds(
    parallel: ParallelSettings,
    gradients: Sequence[float],
    weights: float,
    links: Links,
) -> float:
    """Of a step, after its last backward pass; nothing of it overlaps with computation.

    Args:
        parallel: strategy, replicas, workers, servers.
        gradients: bytes that each stage sums.
        weights: bytes of all variables, which parameter servers are asked for in each step.
        links: of the devices and hosts.
    """
    workers, replicas = parallel.workers, parallel.replicas
    if parallel.strategy == "parameter_server":
        # Each worker fetches all variables and sends all gradients; the servers share that.
        return (weights + sum(gradients)) * max(1.0, workers / parallel.ps) / links.hosts
    devices = workers * replicas
    ring = 2 * (devices - 1) / devices
    inside = max(gradients) / links.devices if replicas > 1 else 0.0
    between = sum(gradients) / links.hosts if workers > 1 else 0.0
    return ring * max(inside, between)


def crosses_hosts(parallel: ParallelSettings) -> bool:
    """Whether anything is sent between hosts."""
    return parallel.workers > 1 or parallel.strategy == "parameter_server"


def is_known(parallel: ParallelSettings, links: Links) -> bool:
    """Whether :func:`seconds` counts what is sent: over the slowest of the links, at least."""
    if crosses_hosts(parallel):
        return links.hosts < math.inf
    return parallel.replicas == 1 or links.devices < math.inf
