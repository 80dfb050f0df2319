"""What is refused before the first component runs, or is compiled."""

import importlib
import json
import sys

import pytest
from click.testing import CliRunner

from stagecraft.common.errors import UserError
from stagecraft.pipeline.checks import preflight
from stagecraft.pipeline.cli.main import main
from stagecraft.pipeline.local import layout
from stagecraft.pipeline.settings import load
from stagecraft.trainer_module.models.initial_weights.loading import MismatchError
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
    ("overrides", "said"),
    [
        (("train.model=preflight_models:softmax",), "returns probabilities"),
        (("train.model=preflight_models:eleven",), r"\(3, 11\)"),
        (("train.model=preflight_models:god",), "preflight_models:good"),
        ((*STAGES, "parallel.cuts=nowhere"), "block1_conv"),
        ((*STAGES, "parallel.memory_mb=1"), "parallel.remat: true"),
        (("data.schema_file=gone.pbtxt",), "gone.pbtxt"),
        (("data.schema_file=label.pbtxt",), "'image' and 'id'"),
    ],
)
def test_errors(models, overrides, said):
    with pytest.raises(UserError, match=said):
        preflight.check(load("quickstart", overrides))


@pytest.mark.parametrize(
    "parallel",
    [
        {"strategy": "mirrored", "replicas": 9},
        {"devices": "GPU:7"},
        {"strategy": "multi_worker_mirrored", "workers": 2, "all_reduce": "nccl"},
    ],
)
def test_devices_that_the_machine_does_not_have(parallel):
    with pytest.raises(UserError, match=r"parallel\."):
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


def command(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.slow
def test_a_run_is_refused_before_its_first_component(models, tmp_path):
    output = tmp_path / "out"
    model = "--set=train.model=preflight_models:softmax"
    done = command("run", model, "--output", output, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["error"].startswith("train.model: preflight_models:softmax ")
    assert {each["state"] for each in found["components"].values()} == {"waiting"}
    assert not layout.pipeline_root(output).exists() and not layout.metadata_db(output).exists()


def test_nothing_is_compiled_that_could_not_be_trained(models, tmp_path):
    model = "--set=train.model=preflight_models:eleven"
    done = command("compile", model, "--output", tmp_path / "out.yaml")
    assert done.exit_code == 1 and "[batch, 10]" in done.stderr
    assert not (tmp_path / "out.yaml").exists()
