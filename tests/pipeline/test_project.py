"""Hooks of a project put components into the pipeline, which reads their outputs."""

from __future__ import annotations

from typing import Any

import pytest
from tfx.components.schema_gen.component import SchemaGen
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.dsl.compiler.compiler import Compiler

from stagecraft.pipeline import create_pipeline
from stagecraft.pipeline.pipeline import HookError
from stagecraft.pipeline.settings import load

SETTINGS = load("quickstart", ["parity.enabled=true", "train.steps=2"])
ORDER = [
    "Cifar10ExampleGen", "StatisticsGen", "ImportSchema", "AnomalyGate", "Transform", "ParityGate",
    "Trainer", "Baseline", "Evaluator", "Pusher", "TrainingReport",
]  # fmt: skip


def upstream(pipeline: Any, name: str) -> list[str]:
    nodes = {each.pipeline_node.node_info.id: each.pipeline_node for each in pipeline.nodes}
    return sorted(nodes[name].upstream_nodes)


def test_components_come_in_order_with_those_before(tmp_path):
    seen = []

    def replace(component: Any, earlier: Any) -> Any:
        assert list(earlier) == seen
        seen.append(component.id)
        return component

    pipeline = create_pipeline(SETTINGS, tmp_path, replace=replace)
    assert seen == ORDER
    assert sorted(each.id for each in pipeline.components) == sorted(ORDER)  # TFX sorts them
    plain = Compiler().compile(create_pipeline(SETTINGS, tmp_path))
    assert Compiler().compile(pipeline).nodes == plain.nodes


def test_later_components_read_what_replaces_one(tmp_path):
    def replace(component: Any, earlier: Any) -> Any:
        if component.id == "ImportSchema":
            return SchemaGen(statistics=earlier["StatisticsGen"].outputs["statistics"])
        return component

    compiled = Compiler().compile(create_pipeline(SETTINGS, tmp_path, replace=replace))
    assert "SchemaGen" in upstream(compiled, "Transform")
    assert upstream(compiled, "SchemaGen") == ["StatisticsGen"]


@pytest.mark.parametrize("engine", ["local", "kubeflow", "vertex"])
def test_added_components_read_the_others(tmp_path, engine):
    settings = load("quickstart", ["kubeflow.pipeline_root=gs://bucket/root"])

    def add(components: Any) -> Any:
        examples = components["Cifar10ExampleGen"].outputs["examples"]
        return [StatisticsGen(examples=examples).with_id("More")]

    output = tmp_path if engine == "local" else None
    compiled = create_pipeline(settings, output, engine=engine, add=add)
    [more] = (each for each in compiled.components if each.id == "More")
    assert [each.id for each in more.upstream_nodes] == ["Cifar10ExampleGen"]


def without_outputs(component: Any, earlier: Any) -> Any:
    if component.id == "Transform":
        return StatisticsGen(examples=earlier["Cifar10ExampleGen"].outputs["examples"]).with_id("X")
    return component


@pytest.mark.parametrize(
    ("hooks", "hook", "node"),
    [
        ({"replace": lambda component, earlier: None}, "replace", "Cifar10ExampleGen"),
        ({"replace": without_outputs}, "replace", "Transform"),
        ({"add": lambda components: ["text"]}, "add", "'text'"),
        ({"add": lambda components: [components["Trainer"]]}, "add", "Trainer"),
    ],
)
def test_what_does_not_fit(tmp_path, hooks, hook, node):
    with pytest.raises(HookError) as caught:
        create_pipeline(SETTINGS, tmp_path, **hooks)
    assert (caught.value.setting, caught.value.value) == (hook, node)
    with pytest.raises(TypeError):
        create_pipeline(SETTINGS)
