"""The chief's pod is the last one to end."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from stagecraft.components.kubernetes import worker
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.settings import TrainingSettings

TOPOLOGIES: dict[str, dict[str, Any]] = {
    "two": {"strategy": "multi_worker_mirrored", "workers": 2},
    "served": {"strategy": "parameter_server", "workers": 2, "ps": 1},
    "evaluated": {"strategy": "multi_worker_mirrored", "workers": 3, "evaluator": True},
}


class Process:
    """One process of a topology, which has finished its training."""

    def __init__(self, folder: pathlib.Path, topology: str, place: int, monkeypatch: Any) -> None:
        settings = TrainingSettings.model_validate(
            {"train": {"batch_size": 12}, "parallel": TOPOLOGIES[topology]}
        )
        count = sum(cluster.jobs(settings.parallel).values())
        self.role = cluster.roles(settings.parallel, ["host:1"] * count)[place]
        self.folder, self.settings = str(folder), settings.flat()
        self.monkeypatch, self.seconds = monkeypatch, 0.0

    def leave(self, meanwhile: Any = lambda: None) -> None:
        def sleep(seconds: float) -> None:
            self.seconds += seconds
            meanwhile()
            self.monkeypatch.setenv("TF_CONFIG", self.role.tf_config)

        self.monkeypatch.setenv("TF_CONFIG", self.role.tf_config)
        worker.leave(self.folder, self.settings, sleep, lambda: self.seconds)


@pytest.mark.parametrize(
    ("topology", "peers"), [("two", [1]), ("served", []), ("evaluated", [1, 2])]
)
def test_the_chief_waits_for_those_that_end(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, topology: str, peers: list[int]
) -> None:
    left = [Process(tmp_path, topology, place, monkeypatch) for place in peers]
    chief = Process(tmp_path, topology, 0, monkeypatch)
    chief.leave(lambda: left.pop().leave())
    assert left == [] and chief.seconds == len(peers)


def test_not_for_ever(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chief = Process(tmp_path, "two", 0, monkeypatch)
    chief.leave()
    assert worker.PATIENCE_SECONDS < chief.seconds < 2 * worker.PATIENCE_SECONDS
    assert "worker 1" in caplog.text


def test_a_process_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    worker.leave(str(tmp_path), TrainingSettings().flat())
    assert list(tmp_path.iterdir()) == []


def test_a_worker_leaves_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Process(tmp_path, "two", 1, monkeypatch).leave()
    [file] = tmp_path.iterdir()
    assert json.loads(file.read_text()) == {}
