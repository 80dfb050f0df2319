import math
from typing import Any

import pytest

from stagecraft.trainer_module.planning import collective_costs
from stagecraft.trainer_module.planning.collective_costs import Links
from stagecraft.trainer_module.settings import ParallelSettings

LINKS = Links(devices=100.0, hosts=10.0)
MB = [600.0, 400.0]
"""Of two stages."""


def seconds(links: Links = LINKS, **parallel: Any) -> float:
    given = {"strategy": "grid", "stages": 2} | parallel
    return collective_costs.exchange_seconds(ParallelSettings(**given), MB, 1_500.0, links)


def test_alone_there_is_nothing_to_send():
    assert seconds() == 0
    assert not collective_costs.crosses_hosts(ParallelSettings())


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
