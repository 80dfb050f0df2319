import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.parallel.cluster import Role, roles
from stagecraft.trainer_module.settings import ParallelSettings

WORKERS = {"worker": ["a:1", "b:1"]}
WITH_CHIEF = {"chief": ["c:1"], "worker": ["a:1", "b:1"]}
WITH_PS = WITH_CHIEF | {"ps": ["p:1"]}
IN_STEP = {"strategy": "multi_worker_mirrored"}
GRID = {"strategy": "grid", "workers": 2}
BY_A_CHIEF = {"strategy": "parameter_server"}

Set = Callable[..., None]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Sets TF_CONFIG: cluster, role, index."""

    def put(jobs: Any, role: Any = "worker", index: Any = 0) -> None:
        text = json.dumps({"cluster": jobs, "task": {"type": role, "index": index}})
        monkeypatch.setenv("TF_CONFIG", text)

    return put


@pytest.mark.parametrize("text", [None, "", "  ", "{}"])
def test_no_cluster(monkeypatch, text):
    if text is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", text)
    assert cluster.read() is None
    assert cluster.training(ParallelSettings.model_validate(IN_STEP)) is None


@pytest.mark.parametrize(
    ("jobs", "role", "index", "worker", "is_chief"),
    [
        (WORKERS, "worker", 0, 0, True),
        (WORKERS, "worker", 1, 1, False),
        (WITH_CHIEF, "chief", 0, 0, True),
        (WITH_CHIEF, "worker", 0, 1, False),
        (WITH_CHIEF, "worker", 1, 2, False),
        (WITH_CHIEF, "worker", "1", 2, False),
        (WITH_PS, "ps", 0, None, False),
        (WITH_PS, "evaluator", 0, None, False),
        (WITH_PS | {"evaluator": ["e:1"]}, "evaluator", 0, None, False),
    ],
)
def test_who_is_who(config, jobs, role, index, worker, is_chief):
    config(jobs, role, index)
    found = cluster.read()
    assert found is not None
    assert (found.role, found.index) == (role, int(index))
    assert found.worker == worker
    assert found.is_chief is is_chief
    assert found.workers == (("a:1", "b:1") if jobs is WORKERS else ("c:1", "a:1", "b:1"))
    assert found.remote_workers == ("a:1", "b:1")
    assert found.ps == tuple(jobs.get("ps", ()))


def test_as_tensorflow_takes_it(config, monkeypatch):
    config(WITH_PS, "ps")
    resolver = cluster.resolver()
    assert resolver.cluster_spec().as_dict() == WITH_PS
    assert (resolver.task_type, resolver.task_id) == ("ps", 0)
    monkeypatch.delenv("TF_CONFIG")
    with pytest.raises(UserError, match="Expecting"):
        cluster.resolver()


def test_addresses_with_colons(config):
    config({"worker": ["[::1]:2222", "[::1]:2223"]})
    found = cluster.read()
    assert found is not None
    assert found.workers == ("[::1]:2222", "[::1]:2223")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"task": {"type": "worker", "index": 0}}',
        '{"cluster": {}, "task": {}}',
        '{"cluster": ["a:1"]}',
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}',
    ],
)
def test_what_is_no_tf_config(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError) as caught:
        cluster.read()
    assert caught.value.setting == "TF_CONFIG"


@pytest.mark.parametrize(
    ("jobs", "role", "index"),
    [
        ({"master": ["a:1"]}, "master", 0),
        (WORKERS, "boss", 0),
        (WORKERS, "chief", 0),
        (WORKERS, "ps", 0),
        (WORKERS, "worker", 2),
        (WORKERS, "worker", True),
        (WORKERS, "worker", None),
        (WORKERS, "evaluator", 1),
        ({"worker": "a:1"}, "worker", 0),
        ({"worker": ["a:1", "a:1"]}, "worker", 0),
        ({"chief": ["a:1"], "worker": ["a:1"]}, "worker", 0),
        ({"chief": ["a:1", "b:1"]}, "chief", 0),
        ({"worker": ["a:"]}, "worker", 0),
        ({"worker": ["a:65536"]}, "worker", 0),
        ({"worker": [1]}, "worker", 0),
    ],
)
def test_what_contradicts_itself(config, jobs, role, index):
    config(jobs, role, index)
    with pytest.raises(UserError) as caught:
        cluster.read()
    assert caught.value.setting == "TF_CONFIG"


@pytest.mark.parametrize(
    ("parallel", "jobs", "role"),
    [
        (IN_STEP | {"workers": 2}, None, ""),
        (IN_STEP | {"workers": 2}, {"ps": ["p:1"]}, "ps"),
        (IN_STEP | {"workers": 2}, WITH_PS, "worker"),
        (IN_STEP | {"workers": 2}, WITH_CHIEF, "worker"),
        (IN_STEP, WORKERS, "worker"),
        (GRID, {"ps": ["p:1"]}, "ps"),
        (GRID, WITH_PS, "worker"),
        (BY_A_CHIEF, None, ""),
        (BY_A_CHIEF, WITH_CHIEF, "chief"),
        (BY_A_CHIEF, WORKERS | {"ps": ["p:1"]}, "ps"),
        (BY_A_CHIEF, {"chief": ["c:1"], "ps": ["p:1"]}, "ps"),
        (BY_A_CHIEF, WITH_PS, "chief"),
    ],
)
def test_a_cluster_that_does_not_fit_the_settings(config, monkeypatch, parallel, jobs, role):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if jobs is not None:
        config(jobs, role)
    with pytest.raises(UserError) as caught:
        cluster.training(ParallelSettings.model_validate(parallel))
    assert caught.value.setting in ("TF_CONFIG", "parallel.workers")


@pytest.mark.parametrize("role", ["chief", "worker", "ps"])
def test_a_cluster_that_fits(config, role):
    config(WITH_PS, role)
    found = cluster.training(ParallelSettings.model_validate(BY_A_CHIEF | {"workers": 2}))
    assert found is not None
    assert found.role == role
    if role != "ps":
        config(WITH_CHIEF, role)
        for strategy in (IN_STEP, GRID):
            found = cluster.training(ParallelSettings.model_validate(strategy | {"workers": 3}))
            assert found is not None
            assert found.worker == (0 if role == "chief" else 1)


@pytest.mark.parametrize("strategy", ["one_device", "mirrored", "central_storage", "tpu", "grid"])
def test_strategies_of_one_process_leave_it_alone(monkeypatch, strategy):
    monkeypatch.setenv("TF_CONFIG", "{not even JSON")
    assert cluster.training(ParallelSettings.model_validate({"strategy": strategy})) is None


def test_tensorflow_hears_of_no_evaluator(config):
    """Its servers would wait for it; Kubeflow's operator has it in the cluster."""
    config(WITH_PS | {"evaluator": ["e:1"]}, "chief", 0)
    assert set(cluster.resolver().cluster_spec().as_dict()) == {"chief", "worker", "ps"}
    assert "evaluator" not in json.loads(os.environ["TF_CONFIG"])["cluster"]


def test_an_evaluator(config):
    parallel = ParallelSettings(evaluator=True)
    assert not cluster.is_evaluator(parallel)
    config(WORKERS, "evaluator", 0)
    assert cluster.is_evaluator(parallel)
    with pytest.raises(UserError, match="evaluator"):
        cluster.is_evaluator(ParallelSettings())
    config(WORKERS, "worker", 1)
    assert not cluster.is_evaluator(parallel)


def test_a_config_that_nobody_asks_for_may_be_anything(monkeypatch):
    for text in ("", "no JSON", "[]", '{"task": {"type": "master", "index": 0}}', '{"task": 1}'):
        monkeypatch.setenv("TF_CONFIG", text)
        assert not cluster.is_evaluator(ParallelSettings())


def test_garbage_is_refused_without_tensorflow():
    code = """
import os, sys
from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.settings import ParallelSettings
two = ParallelSettings(strategy="multi_worker_mirrored", workers=2)
for text in ("garbage", "[1]", "[" * 100_000, '{"cluster": {"x": []}}'):
    os.environ["TF_CONFIG"] = text
    try:
        cluster.check(two)
    except UserError as error:
        print("tensorflow" in sys.modules, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert len(said) == 4
    for line in said:
        assert line.startswith("False environment variable TF_CONFIG: ") and len(line) < 400


@pytest.mark.parametrize(
    ("parallel", "refused"),
    [
        ({"strategy": "one_device"}, False),
        ({**IN_STEP, "workers": 2}, True),
        ({**IN_STEP, "workers": 2, "launcher": "in_process"}, True),
        ({**IN_STEP, "workers": 2, "launcher": "local"}, False),
    ],
)
def test_who_has_no_use_for_it_may_have_any(monkeypatch, parallel, refused):
    monkeypatch.setenv("TF_CONFIG", "garbage")
    settings = ParallelSettings.model_validate(parallel)
    if not refused:
        cluster.check(settings)
        return
    with pytest.raises(UserError) as caught:
        cluster.check(settings)
    assert caught.value.setting == "TF_CONFIG"


def test_peers_by_name(config):
    config(WITH_PS, "chief", 0)
    members = cluster.read()
    assert members is not None
    names = [*members.peers()]
    assert names == ["chief 0", *(f"worker {i}" for i in range(len(WITH_PS["worker"]))), "ps 0"]
    assert list(members.peers().values()) == [
        address for job in WITH_PS.values() for address in job
    ]


def _pod(monkeypatch: pytest.MonkeyPatch, index: str, host: str) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
    monkeypatch.setattr(cluster.socket, "getfqdn", lambda: host)


SERVED = {"parallel_strategy": "parameter_server", "parallel_workers": 2, "parallel_evaluator": 1}


HOSTS = {
    "job": "train-{}.train.models.svc.cluster.local",
    # IdentifyPodNetwork in pkg/runtime/framework/plugins/jobset/jobset.go
    "trainjob": "train-node-0-{}.train.models.svc.cluster.local",
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("index", range(5))
def test_pods_of_an_indexed_job(monkeypatch, host, index):
    _pod(monkeypatch, str(index), host.format(index))
    monkeypatch.delenv("STAGECRAFT_PORT", raising=False)
    cluster.adopt_job(SERVED)
    config = json.loads(os.environ["TF_CONFIG"])
    hosts = [f"{host.format(number)}:2222" for number in range(4)]
    tasks = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]
    assert config == {
        "cluster": {"chief": hosts[:1], "worker": hosts[1:3], "ps": hosts[3:]},
        "task": dict(zip(("type", "index"), tasks[index], strict=True)),
    }


def test_a_config_that_is_set_counts(config, monkeypatch):
    _pod(monkeypatch, "0", "train-0")
    config(WORKERS, "worker", 1)
    before = os.environ["TF_CONFIG"]
    cluster.adopt_job(SERVED)
    assert os.environ["TF_CONFIG"] == before


def test_a_job_of_one_process(monkeypatch):
    _pod(monkeypatch, "0", "train-0")
    cluster.adopt_job({})
    assert "TF_CONFIG" not in os.environ


@pytest.mark.parametrize(
    ("index", "host"),
    [("5", "train-5.train"), ("x", "train-x.train"), ("2", "laptop"), ("2", "train-1.train")],
)
def test_a_pod_that_is_none(monkeypatch, index, host):
    _pod(monkeypatch, index, host)
    with pytest.raises(UserError, match="JOB_COMPLETION_INDEX"):
        cluster.adopt_job(SERVED)


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
