"""Pipelines with TFX's ``Cond`` and exit handlers: compiled, linted by the runner, and emulated."""

import json
import os
import pathlib

import compiled_by
import exit_nodes
import pytest
import tiny_nodes
import yaml
from tfx.components import CsvExampleGen
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.experimental.conditionals.conditional import Cond
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.kubeflow.decorators import FinalStatusStr
from tfx.orchestration.pipeline import Pipeline
from tfx.types import standard_artifacts
from tfx.types.channel import Channel

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import document
from stagecraft.pipeline.kubeflow.compiler.nodes import UnsupportedNodeError
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings

ROOT = "minio://bucket/base"


def steps_of(make):
    return make.outputs["model"].future()[0].custom_property("steps")


def compiled(components, folder, exit_handler=None, **settings):
    """The file's first document."""
    runner = KubeflowRunner(KubeflowSettings(**settings), str(folder), "ours.yaml")
    if exit_handler is not None:
        runner.set_exit_handler(exit_handler)
    runner.run(Pipeline("tiny", ROOT, components=components, enable_cache=True))
    return next(yaml.safe_load_all((folder / "ours.yaml").read_text()))


def goodbye(file="", **more):
    return exit_nodes.Goodbye(final_status=FinalStatusStr(), file=file, **more)


def test_a_condition_on_an_input(tmp_path):
    """TFX itself writes the name of an input that the step does not have."""
    make = tiny_nodes.Make().with_id("make_it")
    with Cond(steps_of(make) > 20):
        copy = tiny_nodes.Copy(make.outputs["model"], 3)
    task = compiled([make, copy], tmp_path)["root"]["dag"]["tasks"]["Copy"]
    assert "inputs.artifacts['model']" in task["triggerPolicy"]["condition"]
    assert set(task["inputs"]["artifacts"]) == {"model"}


def test_conditions_of_another_step(tmp_path):
    """Each node in two blocks has both conditions, and their artifacts as more inputs."""
    first, second = (tiny_nodes.Make().with_id(name) for name in ("first", "second"))
    with Cond(steps_of(first) == 30), Cond(steps_of(second) < 10):
        copy = tiny_nodes.Copy(second.outputs["model"], 3)
    task = compiled([first, second, copy], tmp_path)["root"]["dag"]["tasks"]["Copy"]
    assert task["triggerPolicy"]["condition"].count("&&") == 1
    assert set(task["inputs"]["artifacts"]) == {"model", "_first.model"}


def test_a_condition_on_what_a_resolver_finds_is_refused(tmp_path):
    make = tiny_nodes.Make()
    latest = Resolver(
        strategy_class=LatestBlessedModelStrategy,
        model=Channel(type=standard_artifacts.Model),
        model_blessing=Channel(type=standard_artifacts.ModelBlessing),
    ).with_id("latest")
    with Cond(latest.outputs["model"].future()[0].uri != ""):
        copy = tiny_nodes.Copy(make.outputs["model"], 3)
    with pytest.raises(UnsupportedNodeError) as caught:
        compiled([make, latest, copy], tmp_path)
    assert caught.value.record == "Copy"


def test_the_driver_of_a_node_has_its_condition(tmp_path):
    """It would read data that the condition says is not there."""
    make = tiny_nodes.Make()
    with Cond(steps_of(make) > 20):
        generator = CsvExampleGen("minio://data/points")
    tasks = compiled([make, generator], tmp_path)["root"]["dag"]["tasks"]
    policies = [tasks[name]["triggerPolicy"] for name in ("CsvExampleGen", "CsvExampleGen-inputs")]
    assert policies[0] == policies[1]


def test_an_exit_handler_is_compiled(tmp_path):
    """Behind a DAG of the pipeline, to which the parameters of the pipeline go on."""
    make = tiny_nodes.Make()
    rate = RuntimeParameter("rate", float, default=0.5)
    copy = tiny_nodes.Copy(make.outputs["model"], 3, rate=rate)
    settings = {"steps": {"Goodbye": {"memory": "1Gi"}, "Copy": {"memory": "2Gi"}}}
    spec = compiled([make, copy], tmp_path, goodbye(), **settings)
    root = spec["root"]["dag"]["tasks"]
    assert root["Goodbye"]["dependentTasks"] == ["tfx-dag"]
    assert root["tfx-dag"]["inputs"]["parameters"] == {"rate": {"componentInputParameter": "rate"}}
    assert set(spec["components"]["tfx-dag"]["dag"]["tasks"]) == {"Make", "Copy"}
    found = document.load(tmp_path / "ours.yaml")
    assert found.order() == ["Make", "Copy", "Goodbye"]
    limits = {
        name: step.container.get("resources", {}).get("resourceMemoryLimit")
        for name, step in found.steps().items()
    }
    assert limits == {"Make": None, "Copy": "2Gi", "Goodbye": "1Gi"}


@pytest.mark.parametrize(
    "handler",
    [
        lambda make: tiny_nodes.Copy(make.outputs["model"], 3),
        lambda make: CsvExampleGen("minio://data/points"),
        lambda make: exit_nodes.Goodbye(
            final_status=FinalStatusStr(), file=RuntimeParameter("file", str)
        ),
    ],
)
def test_what_no_exit_handler_can_be(tmp_path, handler):
    make = tiny_nodes.Make()
    node = handler(make)
    with pytest.raises(UserError) as caught:
        compiled([make], tmp_path, node)
    assert caught.value.record == node.id


@pytest.mark.slow
def test_they_run(tmp_path, monkeypatch):
    """A condition that holds, one that does not, and the handler, in the emulated backend."""
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parent), prepend=os.pathsep)
    make = tiny_nodes.Make()
    with Cond(steps_of(make) == 30):
        copy = tiny_nodes.Copy(make.outputs["model"], 3)
        with Cond(steps_of(make) > 30):
            never = tiny_nodes.Copy(make.outputs["model"], 3).with_id("Never")
    told = tmp_path / "told"
    compiled([make, copy, never], tmp_path, goodbye(str(told)))
    states = compiled_by.emulated(tmp_path)
    assert states == {"Make": "done", "Copy": "done", "Never": "skipped", "Goodbye": "done"}
    assert json.loads(told.read_text())["state"] == "COMPLETE"
