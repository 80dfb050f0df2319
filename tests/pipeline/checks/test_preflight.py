"""What is refused before the first component runs, or is compiled."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from stagecraft.pipeline.checks import preflight
from stagecraft.pipeline.cli import compiling, execute
from stagecraft.pipeline.history import runs
from stagecraft.pipeline.local import layout
from stagecraft.pipeline.settings import load
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.models.initial_weights.matching import MismatchError
from stagecraft.trainer_module.settings import ParallelSettings

STAGES = ("parallel.strategy=grid", "parallel.stages=2", "parallel.virtual_devices=2")

MODELS = """
import keras

def model(units, **last):
    return keras.Sequential([
        keras.layers.Input((32, 32, 3)), keras.layers.Flatten(name="flat"),
        keras.layers.Dense(units, **last),
    ])

def softmax(input_shape, num_classes):
    return model(num_classes, activation="softmax")

def eleven(input_shape, num_classes):
    return model(11)

def good(input_shape, num_classes):
    return model(num_classes)
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    (tmp_path / "preflight_models.py").write_text(MODELS)
    domain = 'feature { name: "label" type: INT int_domain { min: 0 max: 9 } }'
    (tmp_path / "label.pbtxt").write_text(domain)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "preflight_models", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("train.model=preflight_models:softmax",), "gives probabilities; give logits"),
        (("train.model=preflight_models:eleven",), r"expected logits \[batch, 10\]"),
        (("train.model=preflight_models:god",), "did you mean 'good'"),
        ((*STAGES, "parallel.cuts=nowhere"), "nowhere"),
        ((*STAGES, "parallel.memory_mb=1"), "parallel.memory_mb: 1 MB is less than a stage takes"),
        (("data.schema_file=gone.pbtxt",), "gone.pbtxt: cannot read the schema"),
        (("data.schema_file=label.pbtxt",), "label.pbtxt: no features 'image' and 'id'"),
    ],
)
def test_what_no_training_can_be_made_of(models, overrides, message):
    with pytest.raises(UserError, match=message):
        preflight.check(load("quickstart", overrides))


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        ({"strategy": "mirrored", "replicas": 9}, "parallel.replicas: 9 needs 9 devices, but"),
        ({"devices": "GPU:7"}, "parallel.devices: GPU:7 names GPU:7, but this machine has"),
        (
            {"strategy": "multi_worker_mirrored", "workers": 2, "all_reduce": "nccl"},
            "parallel.all_reduce: nccl is between GPUs, and this machine has none",
        ),
    ],
)
def test_devices_that_are_not_here(parallel, message):
    with pytest.raises(UserError, match=message):
        preflight.check_devices(ParallelSettings(**parallel))


def test_devices_that_are_here(models):
    for parallel in ({}, {"strategy": "tpu"}, {"strategy": "parameter_server", "workers": 2}):
        preflight.check_devices(ParallelSettings(**parallel))


def test_a_mistake_in_a_model_has_its_line(models, tmp_path):
    (tmp_path / "preflight_models.py").write_text("def broken(**_):\n    return 1 / 0\n")
    sys.modules.pop("preflight_models", None)
    with pytest.raises(UserError, match=r"failed at .*preflight_models.py:2: ZeroDivisionError"):
        preflight.check(load("quickstart", ("train.model=preflight_models:broken",)))


def test_what_a_model_begins_with_is_noted(models):
    preflight_models = importlib.import_module("preflight_models")
    preflight_models.good((32, 32, 3), 10).save_weights("w.weights.h5")
    named = ("train.model=preflight_models:good", "train.initial_weights=w.weights.h5")
    note = "2 of 2 variables start with the values of w.weights.h5"
    assert preflight.check(load("quickstart", named)) == [note]
    preflight_models.eleven((32, 32, 3), 10).save_weights("w.weights.h5")
    with pytest.raises(MismatchError):
        preflight.check(load("quickstart", named))


def test_what_can_be_trained_passes(models):
    preflight.check(load("quickstart"))
    cut = (*STAGES, "parallel.cuts=flat", "parallel.costs=measured")
    preflight.check(load("quickstart", ("train.model=preflight_models:good", *cut)))


@pytest.mark.slow
def test_a_run_is_refused_before_its_first_component(models, tmp_path, capsys):
    wrong = execute.Request(
        config="quickstart",
        overrides=("train.model=preflight_models:softmax",),
        data=None,
        output=tmp_path / "out",
        runner="local",
        from_node=None,
        to_node=None,
        fresh=False,
        require_blessing=False,
        as_json=True,
    )
    assert execute.execute(wrong) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["error"].startswith("train.model: preflight_models:softmax gives probabilities")
    assert {each["state"] for each in found["components"].values()} == {"waiting"}
    assert not layout.pipeline_root(tmp_path / "out").exists()
    with pytest.raises(UserError, match="no run left anything here"):
        runs.of_output(tmp_path / "out")


def test_nothing_is_compiled_that_could_not_be_trained(models, tmp_path, capsys):
    wrong = compiling.Request(
        config="quickstart",
        overrides=("train.model=preflight_models:eleven",),
        data=None,
        output=tmp_path / "out.yaml",
    )
    assert compiling.run(wrong) == 1
    assert "expected logits [batch, 10]" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out.yaml").exists()
