"""Predicts the time of summing gradients: over the links, and over the network.

Each worker counts as a host. The strategy knows what a step sends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.settings import ParallelSettings


class Links(NamedTuple):
    """Bytes a second in one direction; infinite: not known, and ignored."""

    devices: float = math.inf
    """Between devices of a host."""
    hosts: float = math.inf
    """From a host to all others."""


def seconds(
    parallel: ParallelSettings, gradients: Sequence[float], weights: float, links: Links
) -> float:
    """Seconds of a step after its last backward pass, without overlap with computation.

    ``gradients``: bytes of each stage's gradients; ``weights``: bytes of all variables.
    """
    traffic = strategy.find(parallel.strategy).traffic(parallel, gradients, weights)
    return max(traffic.devices / links.devices, traffic.hosts / links.hosts)


def crosses_hosts(parallel: ParallelSettings) -> bool:
    """Whether hosts exchange data."""
    return strategy.find(parallel.strategy).crosses_hosts(parallel)


def is_known(parallel: ParallelSettings, links: Links) -> bool:
    """Whether :func:`seconds` knows the slowest link in use."""
    if crosses_hosts(parallel):
        return links.hosts < math.inf
    return parallel.replicas == 1 or links.devices < math.inf
