"""ParityGate: real examples and transform graph; its processes compute nothing, but for one."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
from artifacts import INPUTS, artifact, training_inputs
from tfx import types
from tfx.dsl.compiler.compiler import Compiler

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.parity_gate.component import ParityGate, ParityGateSpec, ParityReport
from stagecraft.components.parity_gate.executor import Executor
from stagecraft.pipeline.local import nodes
from stagecraft.pipeline.pipeline import create_pipeline
from stagecraft.pipeline.settings import load
from stagecraft.trainer_module.parity import check
from stagecraft.trainer_module.settings import TrainingSettings

MIRRORED = {"strategy": "mirrored", "replicas": 2, "virtual_devices": 2}


def _gate(parallel: dict[str, Any], **more: Any) -> ParityGate:
    return ParityGate(
        **{name: types.Channel(type=kind) for name, kind in INPUTS.items()},
        settings=TrainingSettings.model_validate({"parallel": parallel}),
        steps=4,
        batch_size=8,
        timeout_seconds=120.0,
        **more,
    )


@pytest.fixture
def run(training_data: Any, tmp_path: pathlib.Path):
    """Parallel settings -> the report's artifact, once the gate has let it pass."""

    def run(parallel: dict[str, Any], splits: tuple[str, ...] = ("train", "val")) -> Any:
        inputs = training_inputs(training_data.examples.parent, splits)
        report = artifact(ParityReport, tmp_path / "report")
        Executor().Do(inputs, {"report": [report]}, _gate(parallel).exec_properties)
        return report

    return run


def test_equal_numbers_pass_with_a_table(run, fake):
    report = run(MIRRORED)
    assert report.get_int_custom_property("topologies") == 1
    assert report.get_string_custom_property("verdict") == "equal"
    folder = pathlib.Path(report.uri)
    (row,) = json.loads((folder / "parity.json").read_text())["topologies"]
    assert (row["topology"], row["equal"]) == ("configured", True)
    assert "| configured | one device |" in (folder / "parity.md").read_text()


def test_other_numbers_stop_the_pipeline(run, fake):
    fake(mirrored="differs")
    with pytest.raises(
        SettingError, match=r"kernel: difference 1.73, tolerance 3.89e-06"
    ) as caught:
        run(MIRRORED)
    assert (caught.value.setting, caught.value.value) == ("parallel.strategy", "mirrored")


@pytest.mark.slow
def test_a_topology_that_does_not_run_stops_it_too(run, fake):
    fake(mirrored="error")
    with pytest.raises(UserError, match="train.model: cannot"):
        run(MIRRORED)


def test_one_device_has_nothing_to_prove(run, monkeypatch):
    monkeypatch.setattr(check, "_WORKER", ("there is nothing to start",))
    report = run({})
    assert report.get_int_custom_property("topologies") == 0
    assert (pathlib.Path(report.uri) / "parity.md").read_text().startswith("one device")


def test_without_a_train_split_it_says_so(run, fake):
    with pytest.raises(UserError, match="no split 'train'"):
        run(MIRRORED, splits=("eval",))


def test_batches_are_the_trainers_without_augmentation(run, fake, monkeypatch):
    from stagecraft.components.parity_gate import executor

    saved = {}
    save = executor._save_batches

    def spy(case: Any, input_dict: Any, split: str, path: pathlib.Path) -> None:
        save(case, input_dict, split, path)
        with np.load(path) as data:
            saved.update({name: data[name] for name in data.files})

    monkeypatch.setattr(executor, "_save_batches", spy)
    run(MIRRORED)
    assert saved["inputs"].shape == (8 * executor.BATCHES, 32, 32, 3)
    assert (saved["inputs"].dtype, saved["targets"].dtype) == (np.float32, np.int64)
    # 24 examples, each epoch another order of all of them: whole epochs have the same pictures.
    assert len(np.unique(saved["inputs"][:24], axis=0)) == 24
    assert len(np.unique(saved["inputs"], axis=0)) == 24


@pytest.mark.full
def test_a_real_topology_passes(run):
    report = run({"strategy": "grid", "replicas": 2, "virtual_devices": 2})
    assert report.get_string_custom_property("verdict") == "equal"


def test_every_setting_is_in_the_cache_key():
    settings = TrainingSettings.model_validate({"parallel": MIRRORED})
    properties = _gate(MIRRORED).exec_properties
    assert properties.items() >= settings.flat().items()
    assert set(properties) - set(settings.flat()) == {
        "parity_steps",
        "parity_batch_size",
        "parity_timeout_seconds",
        "code_fingerprint",
    }
    assert set(ParityGateSpec.PARAMETERS) >= set(properties)


def test_the_pipeline_has_it_where_it_is_asked_for(tmp_path):
    settings = load("quickstart", ("parity.enabled=true", "parity.steps=8"))
    compiled = Compiler().compile(create_pipeline(settings, tmp_path))
    by_name = {node.pipeline_node.node_info.id: node.pipeline_node for node in compiled.nodes}
    assert tuple(by_name) == nodes.of(settings)
    assert "ParityGate" in by_name["Trainer"].upstream_nodes
    parameters = by_name["ParityGate"].parameters.parameters
    assert parameters["parity_steps"].field_value.int_value == 8
