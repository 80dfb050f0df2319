"""How many classes a model has: the schema says so, to plan, parity, run and compile alike."""

import sys

import pytest
from click.testing import CliRunner

from stagecraft.pipeline.checks import preflight
from stagecraft.pipeline.cli.commands import parity
from stagecraft.pipeline.cli.main import main
from stagecraft.pipeline.local import parity_data
from stagecraft.pipeline.settings import DataSettings, PipelineSettings, load
from stagecraft.schemas.features import DATASETS
from stagecraft.trainer_module.parity import cases

MODEL = """
import keras

seen = []

def build(input_shape, num_classes):
    seen.append(num_classes)
    layers = [keras.layers.Input(input_shape), keras.layers.Flatten()]
    return keras.Sequential([*layers, keras.layers.Dense(num_classes)])
"""

SEVEN = """
feature { name: "image" type: BYTES }
feature { name: "label" type: INT int_domain { min: 0 max: 6 } }
feature { name: "id" type: INT }
"""

SETTINGS = ("data.schema_file=seven.pbtxt", "train.model=counted_model:build")


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Numbers of classes that the model was built for; there is a schema of seven."""
    (tmp_path / "counted_model.py").write_text(MODEL)
    (tmp_path / "seven.pbtxt").write_text(SEVEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "counted_model", raising=False)
    import counted_model

    return counted_model.seen


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=list(DATASETS))
def test_without_a_schema_of_ones_own_they_are_the_data_sets(dataset):
    label = {"label": "coarse"} if dataset.name == "cifar100_coarse" else {}
    data = DataSettings(source="x", dataset=dataset.name.removesuffix("_coarse"), **label)
    found = preflight.model_arguments(PipelineSettings(data=data))
    assert found == {"input_shape": (32, 32, 3), "num_classes": dataset.num_classes}


def test_plan_builds_for_the_schema(seen):
    words = [f"--set={setting}" for setting in SETTINGS]
    ran = CliRunner().invoke(main, ["plan", *words, "--devices=1xT4-16GB", "--json"])
    assert (ran.exit_code, seen) == (0, [7])


def test_run_and_compile_build_for_the_schema(seen):
    preflight.check(load("quickstart", SETTINGS))  # which both ask before anything else
    assert seen == [7]


def test_parity_builds_for_the_schema(seen, tmp_path, monkeypatch):
    settings = load("quickstart", SETTINGS)
    told = {}

    class Check:
        def __init__(self, data, arguments, *_, **more):
            told["classes"] = arguments["num_classes"]

        def rows(self, chosen):
            return []

    monkeypatch.setattr("stagecraft.trainer_module.parity.check.Check", Check)
    monkeypatch.setattr(
        parity_data, "save", lambda *given: told.update(saved=given[-1]["num_classes"])
    )
    chosen = cases.select("mirrored-2", settings, steps=4, batch_size=4)
    assert parity.check_topologies(settings, chosen, tmp_path, stderr=True) == []
    assert told == {"classes": 7, "saved": 7}
