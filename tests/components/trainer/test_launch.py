"""Who starts the processes, and what becomes of what they tell."""

import logging
import types
from typing import Any

import pytest

from stagecraft.components.trainer import launch
from stagecraft.trainer_module.settings import ParallelSettings

TWO: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


@pytest.mark.parametrize(
    ("parallel", "config", "local"),
    [
        ({}, "", False),
        ({"launcher": "local"}, "", True),
        (TWO, "", True),
        (TWO, '{"cluster": {}}', False),  # somebody else has started this process
        (TWO | {"launcher": "in_process"}, "", False),
        (TWO | {"launcher": "local"}, '{"cluster": {}}', True),
        ({"strategy": "parameter_server"}, "", True),
        ({"strategy": "grid", "stages": 2}, "", False),
        ({"evaluator": True}, "", True),
    ],
)
def test_who_starts_them(parallel, config, local, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    assert launch.is_local(ParallelSettings(**parallel)) == local


def run_fn(fn_args: Any) -> None:
    fn_args.model_run_dir = "trained"


def _fn_args(**settings: Any) -> types.SimpleNamespace:
    config = {"settings": settings, launch.RUN_FN: f"{__name__}.run_fn"}
    return types.SimpleNamespace(custom_config=config, model_run_dir="")


def test_in_this_process(monkeypatch):
    here = types.SimpleNamespace(run_fn=run_fn)
    monkeypatch.setattr(launch.importlib, "import_module", lambda name: here)
    fn_args = _fn_args()
    launch.run(fn_args)
    assert fn_args.model_run_dir == "trained"
    assert fn_args.custom_config == {"settings": {}}  # as `run_fn` knows it


def test_in_processes_of_their_own(monkeypatch):
    started: list[Any] = []

    class Supervisor:
        def __init__(self, parallel: Any, arguments: Any, **more: Any):
            started.append((parallel.workers, arguments, more["first_line"], more["environments"]))

        def run(self) -> None:
            started.append("run")

    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(launch, "Supervisor", Supervisor)
    settings = {f"parallel_{key}": value for key, value in TWO.items()}
    launch.run(_fn_args(**settings))
    (workers, arguments, told, _), run = started
    assert (workers, arguments, run) == (2, ["-"], "run")
    assert f'"run_fn": "{__name__}.run_fn"' in told and '"parallel_workers": 2' in told


def test_progress_is_that_of_the_chief(caplog):
    message = "worker 1 was ended by SIGKILL"
    with caplog.at_level(logging.INFO, "stagecraft.progress"):
        launch._show({"event": "beat"})
        launch._show({"event": "progress", "phase": "resume", "step": 2, "total": 9})
        launch._show({"event": "progress", "phase": "train", "step": 3, "total": 9})
        launch._show({"event": "restart", "number": 1, "message": message})
        launch._show({"event": "progress", "phase": "export"})
    resumed, step, restart, exporting = (record.progress for record in caplog.records)
    assert (exporting, caplog.messages[3]) == ({"phase": "export"}, "exporting the model")
    assert resumed == {"phase": "resume", "step": 2, "total": 9}
    assert caplog.messages[:2] == ["resuming from step 2 of 9", "step 3 of 9"]
    assert step == {"phase": "train", "step": 3, "total": 9}
    assert restart["phase"] == "restart"
    assert restart["message"] == message
