import json

import pytest

from stagecraft.trainer_module.parallel.roles import Role, roles
from stagecraft.trainer_module.settings import ParallelSettings


def test_one_process_is_no_cluster():
    assert roles(ParallelSettings(strategy="mirrored", replicas=2)) == [Role("process")]
    assert roles(ParallelSettings(strategy="multi_worker_mirrored")) == [Role("process")]


@pytest.mark.parametrize(
    ("parallel", "expected", "serving"),
    [
        ({"strategy": "multi_worker_mirrored", "workers": 2}, "worker 0, worker 1", set()),
        (
            {"strategy": "grid", "stages": 2, "workers": 2, "evaluator": True},
            "worker 0, worker 1, evaluator 0",
            set(),
        ),
        (
            {"strategy": "parameter_server", "workers": 2, "ps": 2},
            "chief 0, worker 0, worker 1, ps 0, ps 1",
            {"worker", "ps"},
        ),
        ({"evaluator": True}, "chief 0, evaluator 0", set()),
    ],
)
def test_processes_know_each_other(parallel, expected, serving):
    found, names = roles(ParallelSettings(**parallel)), expected.split(", ")
    assert [role.name for role in found] == names
    assert {role.job for role in found if role.serves} == serving
    configs = [json.loads(role.tf_config or "") for role in found]
    assert all(config["cluster"] == configs[0]["cluster"] for config in configs)
    addresses = [address for job in configs[0]["cluster"].values() for address in job]
    # An evaluator has none: nobody talks to it.
    assert len(set(addresses)) == len([name for name in names if "evaluator" not in name])
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    tasks = [(config["task"]["type"], config["task"]["index"]) for config in configs]
    assert [f"{job} {index}" for job, index in tasks] == names
    assert [role.job for role in found] == [job for job, _ in tasks]


def test_at_addresses_that_are_given():
    two = ParallelSettings(strategy="multi_worker_mirrored", workers=2)
    config = json.loads(roles(two, ["a:1", "b:2"])[1].tf_config or "")
    assert config == {
        "cluster": {"worker": ["a:1", "b:2"]},
        "task": {"type": "worker", "index": 1},
    }
