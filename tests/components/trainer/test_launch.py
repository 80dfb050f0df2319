"""Who starts the processes."""

import sys
import types
from typing import Any

from stagecraft.components.trainer import launch

TWO: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


def run_fn(fn_args: Any) -> None:
    fn_args.model_run_dir = "trained"


def _fn_args(**settings: Any) -> types.SimpleNamespace:
    config = {"settings": settings, launch.RUN_FN: f"{__name__}.run_fn"}
    return types.SimpleNamespace(custom_config=config, model_run_dir="")


def test_in_this_process(monkeypatch):
    here = types.SimpleNamespace(run_fn=run_fn)
    monkeypatch.setitem(sys.modules, __name__, here)
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
    monkeypatch.setattr(launch.local, "Supervisor", Supervisor)
    settings = {f"parallel_{key}": value for key, value in TWO.items()}
    launch.run(_fn_args(**settings))
    (workers, arguments, told, _), run = started
    assert (workers, arguments, run) == (2, ["-"], "run")
    assert f'"run_fn": "{__name__}.run_fn"' in told and '"parallel_workers": 2' in told
