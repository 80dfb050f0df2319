"""The processes of a topology, and the TF_CONFIG of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stagecraft.trainer_module.parallel.roles import Role, roles
from stagecraft.trainer_module.settings import ParallelSettings


def test_one_process_is_no_cluster() -> None:
    assert roles(ParallelSettings(strategy="mirrored", replicas=2)) == [Role("process")]
    assert roles(ParallelSettings(strategy="multi_worker_mirrored")) == [Role("process")]


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [
        (
            {"strategy": "multi_worker_mirrored", "workers": 2},
            [("worker 0", False), ("worker 1", False)],
        ),
        (
            {"strategy": "grid", "stages": 2, "workers": 2, "evaluator": True},
            [("worker 0", False), ("worker 1", False), ("evaluator 0", False)],
        ),
        (
            {"strategy": "parameter_server", "workers": 2, "ps": 2},
            [
                ("chief 0", False),
                ("worker 0", True),
                ("worker 1", True),
                ("ps 0", True),
                ("ps 1", True),
            ],
        ),
        ({"evaluator": True}, [("chief 0", False), ("evaluator 0", False)]),
    ],
)
def test_processes_know_each_other(parallel: Any, expected: list[tuple[str, bool]]) -> None:
    found = roles(ParallelSettings(**parallel))
    assert [(role.name, role.serves) for role in found] == expected
    configs = [json.loads(role.tf_config or "") for role in found]
    assert all(config["cluster"] == configs[0]["cluster"] for config in configs)
    addresses = [address for job in configs[0]["cluster"].values() for address in job]
    # An evaluator has none: nobody talks to it.
    assert len(set(addresses)) == len([name for name, _ in expected if "evaluator" not in name])
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    tasks = [(config["task"]["type"], config["task"]["index"]) for config in configs]
    assert [f"{job} {index}" for job, index in tasks] == [name for name, _ in expected]
    assert [role.job for role in found] == [job for job, _ in tasks]


def test_at_addresses_that_are_given() -> None:
    two = ParallelSettings(strategy="multi_worker_mirrored", workers=2)
    config = json.loads(roles(two, ["a:1", "b:2"])[1].tf_config or "")
    assert config == {
        "cluster": {"worker": ["a:1", "b:2"]},
        "task": {"type": "worker", "index": 1},
    }
