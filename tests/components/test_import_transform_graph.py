"""ImportTransformGraph: an earlier graph for data that have its features."""

from __future__ import annotations

import pathlib

import pytest
from tfx.types import artifact_utils, channel_utils, standard_artifacts

from stagecraft import training
from stagecraft.components import import_transform_graph
from stagecraft.components.import_transform_graph import Executor, ImportTransformGraph
from stagecraft.trainer_module.models.initial_weights.source import TRANSFORM_GRAPH

SCHEMA = """
feature { name: "size" type: FLOAT presence { min_fraction: 1 } shape {} }
feature { name: "town" type: BYTES }
"""


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    """A pushed model's folder, with a graph."""
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(SCHEMA)
    graph = tmp_path / "model" / "assets.extra" / TRANSFORM_GRAPH
    graph.mkdir(parents=True)
    training.write(graph, str(schema))
    return tmp_path / "model"


def execute(model: pathlib.Path, schema_text: str, folder: pathlib.Path) -> pathlib.Path:
    schema = standard_artifacts.Schema()
    schema.uri = str(folder / "schema")
    pathlib.Path(schema.uri).mkdir()
    pathlib.Path(schema.uri, "schema.pbtxt").write_text(schema_text)
    channel = channel_utils.as_channel([schema])
    component = ImportTransformGraph(str(model), channel)
    assert component.id == "Transform"
    graph = standard_artifacts.TransformGraph()
    graph.uri = str(folder / "graph")
    Executor().Do({"schema": [schema]}, {"transform_graph": [graph]}, component.exec_properties)
    return pathlib.Path(artifact_utils.get_single_uri([graph]))


def test_the_graph_is_copied(model, tmp_path):
    found = execute(model, SCHEMA, tmp_path)
    original = import_transform_graph.find(str(model))
    for name in ("transform_fn/saved_model.pb", "metadata/schema.pbtxt"):
        assert (found / name).read_bytes() == (original / name).read_bytes()


@pytest.mark.parametrize(
    ("schema", "record"),
    [
        (SCHEMA.replace('"town"', '"city"'), "town"),
        (SCHEMA.replace("BYTES", "INT"), "town"),
        (SCHEMA.replace("presence { min_fraction: 1 } shape {}", ""), "size"),
    ],
)
def test_data_without_a_feature_are_refused(schema, record, model, tmp_path):
    with pytest.raises(import_transform_graph.TransformGraphError) as caught:
        execute(model, schema, tmp_path)
    assert (caught.value.setting, caught.value.record) == ("transform.graph", record)


def test_a_folder_without_a_graph_is_refused(tmp_path):
    with pytest.raises(import_transform_graph.TransformGraphError) as caught:
        import_transform_graph.find(str(tmp_path))
    assert (caught.value.setting, caught.value.file) == ("transform.graph", str(tmp_path))


def test_a_graph_that_changes_is_refused(model, tmp_path, monkeypatch):
    original = ImportTransformGraph.__init__

    def and_change(self: ImportTransformGraph, *given: object) -> None:
        original(self, *given)
        (import_transform_graph.find(str(model)) / "metadata" / "schema.pbtxt").write_text(SCHEMA)

    monkeypatch.setattr(ImportTransformGraph, "__init__", and_change)
    with pytest.raises(import_transform_graph.TransformGraphError) as caught:
        execute(model, SCHEMA, tmp_path)
    assert caught.value.value == str(import_transform_graph.find(str(model)))
