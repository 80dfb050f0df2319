"""Pipelines that others wrote: compiled, linted, and emulated to their end."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import compiled_by
import components_of_users
import pytest
import tables
import tiny_nodes
from tfx.components import CsvExampleGen
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import example_gen_pb2, range_config_pb2

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.linter.rules import argo_tags

ROOT = "minio://mlpipeline/users"


@pytest.mark.full
def test_values_between_components(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parent))
    pipeline = components_of_users.create_pipeline("values", ROOT)
    compiled_by.ours(pipeline, tmp_path)
    states = compiled_by.emulated(tmp_path)
    names = ("make-numbers", "show-numbers", "check", "make-table", "read-table")
    assert states == dict.fromkeys(names, "done")


def test_a_component_is_named_like_the_step_of_a_driver(tmp_path: pathlib.Path) -> None:
    generator = CsvExampleGen("minio://data/points").with_id("G")
    mine = tiny_nodes.Make().with_id("G-inputs")
    pipeline = Pipeline("two", ROOT, components=[generator, mine])
    tasks = compiled_by.ours(pipeline, tmp_path)["pipelineSpec"]["root"]["dag"]["tasks"]
    assert set(tasks) == {"G", "G-inputs", "G-inputs-2"}
    source = tasks["G"]["inputs"]["parameters"]["driver_output"]["taskOutputParameter"]
    assert source["producerTask"] == "G-inputs-2"


def test_an_input_of_a_driver_comes_from_a_renamed_step(tmp_path: pathlib.Path) -> None:
    make = tiny_nodes.Make().with_id("make_number")
    generator = CsvExampleGen("minio://data/points").with_id("my_examples")
    generator.add_upstream_node(make)
    pipeline = Pipeline("renamed", ROOT, components=[make, generator])
    tasks = compiled_by.ours(pipeline, tmp_path)["pipelineSpec"]["root"]["dag"]["tasks"]
    assert set(tasks) == {"make-number", "my-examples", "my-examples-inputs"}
    assert tasks["my-examples-inputs"]["dependentTasks"] == ["make-number"]


@pytest.mark.slow
def test_an_importer_with_an_underscore(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parent))
    address = "minio://mlpipeline/imported/table"
    table = Importer(address, tables.Table, properties={"rows": 2, "name": "imported"})
    table = table.with_id("my_table")
    counted = tables.count_files(table=table.outputs["result"])
    compiled_by.ours(Pipeline("imports", ROOT, components=[table, counted]), tmp_path)
    folder = tmp_path / "store" / "minio" / "mlpipeline" / "imported" / "table"
    folder.mkdir(parents=True)
    for name in ("a.csv", "b.csv"):
        (folder / name).write_text("1")
    states = compiled_by.emulated(tmp_path)
    assert states == dict.fromkeys(("my-table", "count-files"), "done")


TAGS = "{{pod.name}} {{=1+1}} {{item}} {{{workflow.name}}} {\\u007b é"


def test_tags_of_argo_arrive_as_they_were_written(tmp_path: pathlib.Path) -> None:
    pipeline = Pipeline("tags", ROOT, components=[components_of_users.say(text=TAGS)])
    tasks = compiled_by.ours(pipeline, tmp_path)["pipelineSpec"]["root"]["dag"]["tasks"]
    parameters = {
        name: source["runtimeValue"]["constant"]
        for name, source in tasks["say"]["inputs"]["parameters"].items()
    }
    assert not any(argo_tags.check_texts(parameters, ""))
    given = {"inputs": {"parameterValues": parameters}, "outputs": {}}
    assert Invocation(json.dumps(given), "{}", ()).parameters["text"] == TAGS


@pytest.mark.parametrize(
    ("components", "record"),
    [
        (lambda: [], "refused"),
        (lambda: [tiny_nodes.Copy(tiny_nodes.Make().outputs["model"], 1)], "Copy"),
        (lambda: [_with_parameter_inside()], "CsvExampleGen"),
    ],
)
def test_refused_by_name(tmp_path: pathlib.Path, components: Any, record: str) -> None:
    with pytest.raises(UserError) as refused:
        compiled_by.ours(Pipeline("refused", ROOT, components=components()), tmp_path)
    assert refused.value.record == record
    assert not list(tmp_path.iterdir())


def _with_parameter_inside() -> Any:
    return CsvExampleGen(
        "minio://data/points",
        output_config={"split_config": {"splits": [RuntimeParameter("split", str, "train")]}},
    )


def test_a_range_is_a_component_of_its_own(tmp_path: pathlib.Path) -> None:
    """TFX passes the range of spans as a message."""
    generator = CsvExampleGen(
        "minio://data/{SPAN}",
        range_config=range_config_pb2.RangeConfig(
            static_range=range_config_pb2.StaticRange(start_span_number=1, end_span_number=1)
        ),
        input_config=example_gen_pb2.Input(
            splits=[example_gen_pb2.Input.Split(name="all", pattern="{SPAN}/*")]
        ),
    )
    compiled = compiled_by.ours(Pipeline("spans", ROOT, components=[generator]), tmp_path)
    assert "CsvExampleGen-inputs" in compiled["pipelineSpec"]["root"]["dag"]["tasks"]
