"""Copies and collectives against numbers computed by hand."""

import math
from typing import Any

import pytest

from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.planning import collective_costs
from stagecraft.trainer_module.planning.collective_costs import Link, Links

LINK = Link(rate=100.0, latency=0.5)
LINKS = Links(devices=100.0, hosts=10.0, device_latency=0.5, host_latency=2.0)
COUNTS = [2, 3, 4, 8, 64]


def test_a_copy_takes_the_latency_and_its_bytes():
    assert collective_costs.copy_seconds(300.0, LINK) == 0.5 + 3
    assert collective_costs.copy_seconds(0.0, LINK) == 0, "nothing is sent"
    assert collective_costs.copy_seconds(300.0, Link()) == 0, "the link is not known"


@pytest.mark.parametrize("count", COUNTS)
def test_rings(count):
    part = (count - 1) * (0.5 + 800 / count / 100)
    assert collective_costs.reduce_scatter_seconds(800.0, count, LINK) == pytest.approx(part)
    assert collective_costs.all_gather_seconds(800.0, count, LINK) == pytest.approx(part)
    assert collective_costs.all_reduce_seconds(800.0, count, LINK) == pytest.approx(2 * part)


def test_without_latency_an_all_reduce_sends_what_the_literature_says():
    seconds = collective_costs.all_reduce_seconds(800.0, 4, Link(100.0))
    assert seconds == pytest.approx(2 * 3 / 4 * 800 / 100)


def test_one_device_sends_nothing():
    assert collective_costs.reduce_scatter_seconds(800.0, 1, LINK) == 0
    assert collective_costs.all_gather_seconds(800.0, 1, LINK) == 0
    assert collective_costs.all_reduce_seconds(800.0, 1, LINK) == 0
    assert collective_costs.hierarchical_all_reduce_seconds(800.0, 1, 1, LINKS) == 0
    for ring in (True, False):
        assert collective_costs.shards_seconds(800.0, 1, LINK, ring=ring) == 0


def test_an_all_reduce_over_hosts():
    # In each of 3 hosts, 4 devices keep 200 bytes each; all 4 send over the network at once.
    inside = 2 * 3 * (0.5 + 200 / 100)
    between = 2 * 2 * (2.0 + 200 / 3 / (10 / 4))
    found = collective_costs.hierarchical_all_reduce_seconds(800.0, 4, 3, LINKS)
    assert found == pytest.approx(inside + between)


def test_groups_share_the_network_and_not_the_links_inside():
    one, two = (
        collective_costs.hierarchical_all_reduce_seconds(800.0, 4, 3, LINKS, groups)
        for groups in (1, 2)
    )
    assert two - one == pytest.approx(2 * 2 * 200 / 3 / (10 / 4))


def test_one_host_or_one_device_in_each_is_a_plain_ring():
    alone = collective_costs.hierarchical_all_reduce_seconds(800.0, 4, 1, LINKS)
    assert alone == collective_costs.all_reduce_seconds(800.0, 4, LINKS.inside)
    spread = collective_costs.hierarchical_all_reduce_seconds(800.0, 1, 4, LINKS)
    assert spread == collective_costs.all_reduce_seconds(800.0, 4, LINKS.between())


def test_between_hosts_it_takes_longer_than_inside():
    inside = collective_costs.hierarchical_all_reduce_seconds(800.0, 8, 1, LINKS)
    for devices, hosts in ((4, 2), (2, 4), (1, 8)):
        spread = collective_costs.hierarchical_all_reduce_seconds(800.0, devices, hosts, LINKS)
        assert spread > inside


def test_more_devices_bytes_and_latency_never_take_less():
    def seconds(size: float = 800.0, count: int = 4, link: Link = LINK) -> float:
        return collective_costs.all_reduce_seconds(size, count, link)

    times = [seconds(count=count) for count in (1, *COUNTS)]
    assert times == sorted(times)
    assert seconds(size=801.0) > seconds()
    assert seconds(link=Link(99.0, 0.5)) > seconds()
    assert seconds(link=Link(100.0, 0.6)) > seconds()


def test_shards_sum_in_a_ring_or_through_the_first():
    """800 bytes of inputs, as many of outputs."""
    assert collective_costs.shards_seconds(1600.0, 4, LINK, ring=True) == pytest.approx(
        2 * 3 * (0.5 + 200 / 100)
    )
    assert collective_costs.shards_seconds(1600.0, 4, LINK, ring=False) == pytest.approx(
        2 * 3 * (0.5 + 800 / 100)
    )


def test_an_exchange_hides_behind_the_backward_pass_as_far_as_that_lasts():
    parallel = ParallelSettings(strategy="mirrored", replicas=2)
    links = Links(devices=100.0)

    def seconds(hidden: float) -> float:
        return collective_costs.exchange_seconds(parallel, [800.0], 800.0, links, hidden)

    assert (seconds(0.0), seconds(3.0), seconds(8.0), seconds(9.0)) == (8.0, 5.0, 0.0, 0.0)


def test_latencies_of_the_exchange():
    parallel = ParallelSettings(strategy="grid", workers=2, replicas=2)
    links = Links(devices=math.inf, hosts=10.0, device_latency=0.5, host_latency=2.0)
    found = collective_costs.exchange_seconds(parallel, [800.0], 800.0, links)
    assert found == pytest.approx(2 * 3 / 4 * 800 / 10 + 2 * 3 * 2.0)
    alone = ParallelSettings(strategy="grid", stages=2)
    assert collective_costs.exchange_seconds(alone, [800.0, 1.0], 801.0, LINKS) == 0


def test_links_of_an_accelerator_and_a_network():
    found = collective_costs.links(300, 10)
    assert (found.devices, found.hosts) == (pytest.approx(240e9), pytest.approx(1e9))
    assert 0 < found.device_latency < found.host_latency
    assert collective_costs.links(None, None) == collective_costs.links(None, 0) == Links()


# --- the exchange of a step ---


AT_ONCE = Links(devices=100.0, hosts=10.0)
"""Without latency."""
MB = [600.0, 400.0]
"""Of two stages."""


def seconds(links: Links = AT_ONCE, **parallel: Any) -> float:
    given = {"strategy": "grid", "stages": 2} | parallel
    return collective_costs.exchange_seconds(ParallelSettings(**given), MB, 1_500.0, links)


def test_alone_there_is_nothing_to_send():
    assert seconds() == 0
    assert not ParallelSettings().found.crosses_hosts(ParallelSettings())


def test_inside_a_host_the_largest_stage_takes_longest():
    assert seconds(replicas=4) == pytest.approx(2 * 3 / 4 * 600 / 100)


def test_between_hosts_all_stages_share_the_network():
    assert seconds(workers=4) == pytest.approx(2 * 3 / 4 * 1_000 / 10)
    assert seconds(workers=4, replicas=2) == pytest.approx(2 * 7 / 8 * 1_000 / 10)


def test_the_slowest_link_counts():
    fast = Links(devices=1.0, hosts=1_000.0)
    assert seconds(fast, workers=2, replicas=2) == pytest.approx(2 * 3 / 4 * 600 / 1)


def test_parameter_servers_share_what_all_workers_fetch_and_send():
    given = {"strategy": "parameter_server", "stages": 1}
    assert seconds(workers=4, ps=2, **given) == pytest.approx((1_500 + 1_000) * 2 / 10)
    assert seconds(workers=2, ps=4, **given) == pytest.approx((1_500 + 1_000) / 10)


@pytest.mark.parametrize(
    ("parallel", "links", "known"),
    [
        ({}, Links(), True),
        ({"strategy": "mirrored", "replicas": 2}, Links(hosts=1), False),
        ({"strategy": "mirrored", "replicas": 2}, Links(devices=1), True),
        ({"strategy": "grid", "workers": 2}, Links(devices=1), False),
        ({"strategy": "grid", "workers": 2, "replicas": 2}, Links(hosts=1), True),
        ({"strategy": "parameter_server"}, Links(), False),
    ],
)
def test_what_is_not_known_is_not_counted(parallel, links, known):
    settings = ParallelSettings(**parallel)
    assert collective_costs.is_known(settings, links) == known
    if not known:
        assert collective_costs.exchange_seconds(settings, [8.0], 8.0, Links()) == 0
    assert math.isfinite(collective_costs.exchange_seconds(settings, [8.0], 8.0, links))
