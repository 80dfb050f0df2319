"""How long devices take to add up their gradients: over their links, and over the network.

Each worker counts as a host. The strategy knows what a step sends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.trainer_module.parallel import strategy
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
        gradients: bytes of each stage's gradients.
        weights: bytes of all variables.
        links: of the devices and hosts.
    """
    traffic = strategy.find(parallel.strategy).traffic(parallel, gradients, weights)
    return max(traffic.devices / links.devices, traffic.hosts / links.hosts)


def crosses_hosts(parallel: ParallelSettings) -> bool:
    """Whether a step sends anything between hosts."""
    return strategy.find(parallel.strategy).crosses_hosts(parallel)


def is_known(parallel: ParallelSettings, links: Links) -> bool:
    """Whether :func:`seconds` counts the traffic over the slowest of the links, at least."""
    if crosses_hosts(parallel):
        return links.hosts < math.inf
    return parallel.replicas == 1 or links.devices < math.inf
