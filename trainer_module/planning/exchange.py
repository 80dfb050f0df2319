"""Predicts the time of summing gradients: a ring over the links, and over the network.

Each worker counts as a host. In a ring of N devices, each sends and receives ``2 (N - 1) / N`` of
the bytes to sum (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", section 2). Every stage has a ring over all of its replicas. Inside a host each ring
has its own links, so the largest stage takes longest; between hosts all rings share the network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.trainer_module.settings import ParallelSettings


class Links(NamedTuple):
    """Bytes a second in one direction; infinite: not known, and ignored."""

    devices: float = math.inf
    """Between devices of a host."""
    hosts: float = math.inf
    """From a host to all others."""


def seconds(
    parallel: ParallelSettings,
    gradients: Sequence[float],
    weights: float,
    links: Links,
) -> float:
    """Seconds of a step after its last backward pass, without overlap with computation.

    Args:
        parallel: strategy, replicas, workers, servers.
        gradients: bytes that each stage sums.
        weights: bytes of all variables, which parameter servers send in each step.
    """
    workers, replicas = parallel.workers, parallel.replicas
    if parallel.strategy == "parameter_server":
        # Each worker fetches all variables and sends all gradients; the servers share the load.
        return (weights + sum(gradients)) * max(1.0, workers / parallel.ps) / links.hosts
    devices = workers * replicas
    ring = 2 * (devices - 1) / devices
    inside = max(gradients) / links.devices if replicas > 1 else 0.0
    between = sum(gradients) / links.hosts if workers > 1 else 0.0
    return ring * max(inside, between)


def crosses_hosts(parallel: ParallelSettings) -> bool:
    """Whether hosts exchange data."""
    return parallel.workers > 1 or parallel.strategy == "parameter_server"


def is_known(parallel: ParallelSettings, links: Links) -> bool:
    """Whether :func:`seconds` knows the slowest link in use."""
    if crosses_hosts(parallel):
        return links.hosts < math.inf
    return parallel.replicas == 1 or links.devices < math.inf
