from typing import Any

import pytest

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel.cluster import roles
from stagecraft.trainer_module.processes.liveness import THREADS, environments
from stagecraft.trainer_module.settings import ParallelSettings

IN_STEP: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


def _shares(cores: int, gpus: str = "", **parallel: Any) -> dict[str, Any]:
    settings = ParallelSettings(**parallel)
    found = roles(settings)
    shares = environments(settings, found, cores=cores, gpus=gpus.split())
    return {role.name: dict(share) for role, share in zip(found, shares, strict=True)}


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)


def test_cores():
    assert _shares(8, **IN_STEP) == {"worker 0": {THREADS: "4"}, "worker 1": {THREADS: "4"}}
    assert _shares(1, **IN_STEP)["worker 1"] == {THREADS: "1"}
    assert _shares(8, evaluator=True) == {"chief 0": {}, "evaluator 0": {}}


def test_what_is_set_stays(monkeypatch):
    monkeypatch.setenv(THREADS, "3")
    assert _shares(8, **IN_STEP)["worker 1"] == {THREADS: "3"}


def test_gpus():
    visible = "CUDA_VISIBLE_DEVICES"
    grid = _shares(8, "0 1 5 7", strategy="grid", stages=2, workers=2, evaluator=True)
    assert [share[visible] for share in grid.values()] == ["0,1", "5,7", "-1"]
    served = _shares(8, "0 1", strategy="parameter_server", workers=2)
    assert {name: share[visible] for name, share in served.items()} == {
        "chief 0": "-1",
        "worker 0": "0",
        "worker 1": "1",
        "ps 0": "-1",
    }
    assert _shares(8, "4 5", evaluator=True)["chief 0"][visible] == "4"


def test_auto_chooses_from_all_gpus():
    found = _shares(8, "0 1 5", strategy="auto", evaluator=True)
    assert found == {
        "chief 0": {"CUDA_VISIBLE_DEVICES": "0,1,5"},
        "evaluator 0": {"CUDA_VISIBLE_DEVICES": "-1"},
    }


def test_named_gpus():
    with pytest.raises(UserError) as caught:
        _shares(8, "0 1", devices="GPU:1", evaluator=True)
    assert caught.value.setting == "parallel.devices"


def test_the_only_process_has_all_gpus():
    for parallel in ({}, {"devices": "GPU:1"}, {"strategy": "mirrored", "replicas": 2}):
        assert _shares(8, "0 1", launcher="local", **parallel) == {"process": {}}


def test_too_few_gpus():
    message = "workers: 2 with 2 devices each need 4 GPUs, but this host has 3; .*workers: 1"
    with pytest.raises(UserError, match=message):
        _shares(8, "0 1 2", replicas=2, **IN_STEP)
