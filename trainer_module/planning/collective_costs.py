"""Predicts the seconds of copies and collectives from links. Imports no TensorFlow.

The alpha-beta model: a message takes a latency, and its bytes divided by the bandwidth of the link
(Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in
MPICH", section 3). Collectives run around a ring (Patarasuk and Yuan 2009, "Bandwidth optimal
all-reduce algorithms for clusters of workstations"): of n devices, each sends ``n - 1`` messages of
a n-th of the bytes for a reduce-scatter or an all-gather, and twice as many for an all-reduce.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.trainer_module.parallel.settings import ParallelSettings

LINK_EFFICIENCY = 0.8
"""Share of a link's rate that messages reach. Published runs of ``all_reduce_perf`` on A100 reach
200 of 300 GB/s inside a host (github.com/NVIDIA/nccl-tests, issue 149), and between hosts 85 to 96
of 100 (issue 119) and 75 of 100 (github.com/NVIDIA/nccl, issue 495)."""

DEVICE_LATENCY, HOST_LATENCY = 5e-6, 1e-5
"""Seconds of a message without bytes; assumed."""


class Link(NamedTuple):
    """A link in one direction."""

    rate: float = math.inf
    """Bytes a second; infinite: not known, and ignored."""
    latency: float = 0.0
    """Seconds of a message without bytes."""


class Links(NamedTuple):
    """The links of a host in one direction; infinite: not known, and ignored."""

    devices: float = math.inf
    """Bytes a second from a device to another of its host: NVLink, or PCIe."""
    hosts: float = math.inf
    """Bytes a second from a host to the others: of all its network cards together."""
    device_latency: float = 0.0
    """Seconds of a message without bytes, inside a host."""
    host_latency: float = 0.0
    """The same between hosts."""
    shards: float = math.inf
    """The same, for what shards exchange where that is not known: they exchange so much that
    free copies would make them look best."""

    @property
    def inside(self) -> Link:
        """The link of a device to the others of its host."""
        return Link(self.devices, self.device_latency)

    def between(self, share: float = 1.0) -> Link:
        """The link of a host to the others.

        Args:
            share: the part of the host's network that is free for the messages, such as ``1 / g``
                if g groups of devices send at once.
        """
        return Link(share * self.hosts, self.host_latency)


def links(link_gb_per_second: float | None, network_gbit: float | None) -> Links:
    """The links of a host, at the share of their rates that messages reach.

    Args:
        link_gb_per_second: of a device to the others of its host; None: not known.
        network_gbit: Gbit/s of a host to the others; None or 0: not known.
    """
    inside = Link()
    if link_gb_per_second is not None:
        inside = Link(LINK_EFFICIENCY * link_gb_per_second * 1e9, DEVICE_LATENCY)
    between = Link()
    if network_gbit:
        between = Link(LINK_EFFICIENCY * network_gbit * 1e9 / 8, HOST_LATENCY)
    return Links(inside.rate, between.rate, inside.latency, between.latency)


def copy_seconds(size: float, link: Link) -> float:
    """Seconds to send ``size`` bytes from one device to another; nothing takes no time."""
    return link.latency + size / link.rate if size else 0.0


def reduce_scatter_seconds(size: float, count: int, link: Link) -> float:
    """Seconds in which ``count`` devices sum ``size`` bytes, and each keeps its part."""
    return (count - 1) * copy_seconds(size / count, link)


def all_gather_seconds(size: float, count: int, link: Link) -> float:
    """Seconds in which ``count`` devices, each with a part of ``size`` bytes, receive the rest."""
    return (count - 1) * copy_seconds(size / count, link)


def all_reduce_seconds(size: float, count: int, link: Link) -> float:
    """Seconds in which ``count`` devices sum ``size`` bytes: ``2 (n - 1) / n`` of them are sent."""
    return reduce_scatter_seconds(size, count, link) + all_gather_seconds(size, count, link)


def hierarchical_all_reduce_seconds(
    size: float, devices: int, hosts: int, links: Links, groups: int = 1
) -> float:
    """Seconds in which ``devices`` of each of ``hosts`` sum ``size`` bytes.

    Inside each host, a reduce-scatter comes first and an all-gather last. Between, each device
    sums its part with those of the other hosts; the devices share the network of their host.

    Args:
        groups: of devices, such as the shards of a stage, which do the same at once and share the
            network.
    """
    return (
        reduce_scatter_seconds(size, devices, links.inside)
        + all_reduce_seconds(size / devices, hosts, links.between(1 / (devices * groups)))
        + all_gather_seconds(size, devices, links.inside)
    )


def shards_seconds(size: float, shards: int, link: Link, *, ring: bool) -> float:
    """Seconds of a pass in which the shards of a stage exchange activations.

    Args:
        size: ``StageCost.shard_bytes`` of the examples of a microbatch: inputs and outputs.
        ring: whether the shards sum their outputs in an all-reduce (Shoeybi et al. 2019,
            "Megatron-LM: Training multi-billion parameter language models using model parallelism",
            section 3), so that each has inputs and outputs. If not, the first shard sends its
            inputs to each other shard, and receives their outputs.
    """
    if ring:
        return all_reduce_seconds(size / 2, shards, link)
    return 2 * (shards - 1) * copy_seconds(size / 2, link)


def exchange_seconds(
    parallel: ParallelSettings,
    gradients: Sequence[float],
    weights: float,
    links: Links,
    hidden: float = 0.0,
) -> float:
    """Seconds of a step after its last backward pass.

    A ring passes through links inside hosts and between them; the slower ones set its pace.

    Args:
        parallel: replicas, workers, servers.
        gradients: bytes of each stage's gradients.
        weights: bytes of all variables.
        links: of the hosts.
        hidden: seconds of the last backward pass that overlap with the exchange. 0: no overlap, as
            in all strategies of this package.
    """
    traffic = parallel.found.traffic(parallel, gradients, weights)
    inside = traffic.devices / links.devices
    between = traffic.hosts / links.hosts
    messages = 2 * (parallel.workers * parallel.replicas - 1)
    if traffic.devices:
        inside += messages * links.device_latency
    if traffic.hosts:
        between += messages * links.host_latency
    return max(inside, between) - min(max(inside, between), hidden)


def is_known(parallel: ParallelSettings, links: Links) -> bool:
    """Whether :func:`exchange_seconds` knows the slowest link in use."""
    if parallel.found.crosses_hosts(parallel):
        return links.hosts < math.inf
    return parallel.replicas == 1 or links.devices < math.inf
