import json
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensorflow.core.protobuf import saved_model_pb2

from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.parallel.cluster import roles
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training import record

HERE = pathlib.Path(__file__).parent
MakeFnArgs = Callable[..., types.SimpleNamespace]

PLAIN = {
    "train_model": "networks:plain",
    "train_optimizer": "sgd",
    "train_shuffle": "stream",
    "train_augment": "none",
}
"""Nothing in it depends on how a batch is split."""


@pytest.fixture
def train(make_fn_args: MakeFnArgs, tmp_path: pathlib.Path) -> Callable[..., types.SimpleNamespace]:
    """Name of a folder, settings -> what the chief was told; runs all processes to their end."""

    def run(name: str, **settings: Any) -> types.SimpleNamespace:
        fn_args = make_fn_args(tmp_path / name, **PLAIN, **settings)
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(vars(fn_args)))
        parallel = TrainingSettings.from_flat(fn_args.custom_config["settings"]).parallel
        search = os.pathsep.join([str(HERE / "logical_cpus"), os.environ.get("PYTHONPATH", "")])
        started = []
        try:
            for role in roles(parallel):
                env = os.environ | {"PYTHONPATH": search}
                if role.tf_config:
                    env["TF_CONFIG"] = role.tf_config
                log = (tmp_path / f"{name} {role.name}.log").open("w+")
                program, out = HERE.parent / "train.py", tmp_path / f"{name} {role.name}"
                words = [sys.executable, program, path, out]
                process = subprocess.Popen(words, env=env, stdout=log, stderr=log)
                started.append((role, process, log))
            for role, process, log in started:
                if not role.serves:
                    code = process.wait(240)
                    log.seek(0)
                    assert code == 0, f"{role.name}: {log.read()[-4000:]}"
        finally:
            for _, process, log in started:
                process.kill()  # parameter servers and their workers never end by themselves
                process.wait()
                log.close()
        return fn_args

    return run


def _state(fn_args: types.SimpleNamespace, step: int) -> dict[str, np.ndarray]:
    return Checkpoints(fn_args.working_dir).load(step).state


def _assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        # Rounding of gradients, times the learning rate of 0.01, over 6 steps of momentum 0.9.
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=name)


def _devices(folder: str) -> set[str]:
    model = saved_model_pb2.SavedModel.FromString(
        pathlib.Path(folder, "saved_model.pb").read_bytes()
    )
    graph = model.meta_graphs[0].graph_def
    functions = [node for function in graph.library.function for node in function.node_def]
    return {node.device for node in (*graph.node, *functions)}


IN_STEP = {"parallel_strategy": "multi_worker_mirrored", "parallel_workers": 2}
STAGES = {"parallel_strategy": "grid", "parallel_stages": 2, "parallel_virtual_devices": 2}
GRID = STAGES | {"parallel_workers": 2, "parallel_microbatches": 2, "parallel_costs": "measured"}


@pytest.mark.full
@pytest.mark.parametrize("two", [IN_STEP, GRID], ids=["mirrored", "grid"])
def test_workers_in_step(train, tmp_path, two):
    alone = train("alone")
    together = train("together", **two)
    expected = record.read(alone.model_run_dir)
    found = record.read(together.model_run_dir)
    assert found["topology"]["workers"] == 2
    _assert_close(_state(together, 6), _state(alone, 6))
    for ours, theirs in zip(found["evaluations"], expected["evaluations"], strict=True):
        # Ten examples in batches of 4: each counted once, or the accuracy is no tenth.
        assert ours["accuracy"] * 10 == pytest.approx(round(ours["accuracy"] * 10), abs=1e-6)
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)

    chief, worker = (np.load(tmp_path / f"together worker {i}.npz") for i in (0, 1))
    assert {name: chief[name].tobytes() for name in chief} == {
        name: worker[name].tobytes() for name in worker
    }

    # The chief alone writes.
    assert os.listdir(tmp_path / "together" / "model") == ["Format-Serving"]
    written = [path for path in (tmp_path / "together").rglob("*") if path.is_file()]
    others = [path for path in written if "worker1" in path.parts]
    assert all("tfevents" in path.name for path in others), others
    assert _devices(together.serving_model_dir) <= {"", "*", "/device:CPU:*", "/device:CPU:0"}

    # Stopped after 4 steps, and gone on with: the same bits.
    train("stopped", train_steps=4, train_schedule="constant", **two)
    resumed = train("stopped", train_schedule="constant", **two)
    undisturbed = train("undisturbed", train_schedule="constant", **two)
    assert record.read(resumed.model_run_dir)["resumed_from"] == 4
    before, after = _state(undisturbed, 6), _state(resumed, 6)
    assert {name: value.tobytes() for name, value in before.items()} == {
        name: value.tobytes() for name, value in after.items()
    }


@pytest.mark.full
@pytest.mark.parametrize("more", [{}, {"train_freeze_after": '{"conv0": 0.5}'}], ids=["", "frozen"])
def test_parameter_server(train, more):
    alone = train("alone", **more)
    served = train("served", parallel_strategy="parameter_server", **more)
    _assert_close(_state(served, 6), _state(alone, 6))
    expected = record.read(alone.model_run_dir)
    found = record.read(served.model_run_dir)
    for ours, theirs in zip(found["evaluations"], expected["evaluations"], strict=True):
        assert ours["accuracy"] == theirs["accuracy"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    assert _devices(served.serving_model_dir) <= {"", "*", "/device:CPU:*", "/device:CPU:0"}


@pytest.mark.full
def test_three_stages(train):
    stages = {"parallel_strategy": "grid", "parallel_stages": 3, "parallel_virtual_devices": 3}
    alone, split = train("alone"), train("split", **stages, parallel_timeline_step=3)
    _assert_close(_state(split, 6), _state(alone, 6))
    notes = record.read(split.model_run_dir)
    assert notes["topology"]["devices"] == ["CPU:0", "CPU:1", "CPU:2"]
    assert sum(stage["share"] for stage in notes["plan"]["stages"]) == pytest.approx(1)
    watched = json.loads(pathlib.Path(split.model_run_dir, "timeline.json").read_text())
    assert watched["step"] == 3
    assert {(span["stage"], span["what"]) for span in watched["spans"]} >= {
        (stage, what) for stage in range(3) for what in ("forward", "backward", "update")
    }
    assert _devices(split.serving_model_dir) <= {"", "*", "/device:CPU:*", "/device:CPU:0"}
