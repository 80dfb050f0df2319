"""The page on spans: a window of three days, none of which is read twice."""

import json
import pathlib

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2
from reading import ROOT, Reader
from snippets import snippets

from stagecraft.components.metadata import file
from stagecraft.pipeline.cli.commands import schema
from stagecraft.pipeline.history import past_run, runs
from stagecraft.pipeline.history.report import report_data
from stagecraft.pipeline.kubeflow import document
from stagecraft.pipeline.kubeflow.compile import compile_pipeline
from stagecraft.pipeline.local import layout
from stagecraft.pipeline.local.span_runs import GATE, SpanRuns
from stagecraft.pipeline.settings import load
from stagecraft.trainer_module.training import record

PAGE = ROOT / "docs" / "how-to" / "continuous.md"
DAYS = ["2026-11-01", "2026-11-02", "2026-11-03"]


def done(store: ml_metadata.MetadataStore, node: str) -> int:
    """Executions of a component that were not cached."""
    complete = metadata_store_pb2.Execution.COMPLETE
    contexts = [each for each in store.get_contexts_by_type("node") if each.name.endswith(node)]
    executions = [e for each in contexts for e in store.get_executions_by_context(each.id)]
    return sum(each.last_known_state == complete for each in executions)


@pytest.mark.slow
def test_it_trains_on_three_days(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.read(PAGE)
    monkeypatch.chdir(reader.folder)
    output = pathlib.Path("runs/flats")
    store = file.open_store(layout.metadata_db(output))
    assert done(store, ".ExampleGen") == done(store, ".AnomalyGate") == 3, "none is read twice"
    assert done(store, ".Trainer") == 1

    newest, *_ = runs.list_runs(output)
    last = past_run.read(newest)
    assert last.state == "done"
    assert (last.span["name"], last.span["version"], last.span["files"]) == (DAYS[-1], 1, 1)
    [model_run] = (layout.pipeline_root(output) / "Trainer" / "model_run").iterdir()
    notes = record.read(model_run)
    assert [each["name"] for each in notes["spans"]] == DAYS
    assert notes["examples"]["train"] == pytest.approx(3 * 300 * 0.8, rel=0.1)
    again = report_data(newest)
    assert [each.span for each in again.earlier_models] == [DAYS[-1]]
    assert again.data.source == "data"
    [card] = (layout.pipeline_root(output) / "TrainingReport" / "model_card").rglob("*.json")
    [data] = json.loads(card.read_text())["model_parameters"]["data"]
    assert all(day in data["description"] for day in (DAYS[0], DAYS[-1]))

    backfill = SpanRuns(load("flats.yaml"), output)
    there, missing = backfill.between(f"{DAYS[0]}:{DAYS[-1]}")
    assert [span.name for span in there] == DAYS and not missing
    assert [*backfill.completed(there)] == [there[-1].number]
    assert backfill.completed(there, GATE).keys() == {span.number for span in there}
    pathlib.Path("data/2026-11-03/v2").mkdir()
    pathlib.Path("data/2026-11-03/v2/flats.csv").write_text("area,rooms,price\n1,1,1\n")
    assert not backfill.completed(backfill.every()[-1:]), "a new version is noticed"


SCHEMA = """
feature { name: "area" type: FLOAT presence { min_fraction: 1 min_count: 1 } shape {} }
feature { name: "rooms" type: INT presence { min_fraction: 1 min_count: 1 } shape {} }
feature { name: "price" type: FLOAT presence { min_fraction: 1 min_count: 1 } shape {} }
"""


def test_it_compiles(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for found in snippets(PAGE.read_text()):
        if found.title:
            (tmp_path / found.title).write_text(found.text)
    assert load("flats.yaml", schema.INFERRING).data.infer_schema, "stagecraft schema"
    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    source = "minio://bucket/data/{YYYY}-{MM}-{DD}/v{VERSION}"
    compile_pipeline(load("flats.yaml", [f"data.source={source}"]), tmp_path / "flats.yaml.out")
    spec = document.load(tmp_path / "flats.yaml.out").spec
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    assert inputs["data_span"]["defaultValue"] == "latest"
    assert inputs["data_source"]["defaultValue"] == source
    tasks = spec["root"]["dag"]["tasks"]
    chosen = {"componentInputParameter": "data_span"}
    assert tasks["ExampleGen-inputs"]["inputs"]["parameters"]["range_config"] == chosen
    assert "range_config" not in tasks["ExampleGen"]["inputs"]["parameters"]
    window = {"taskOutputParameter": {"outputParameterKey": "examples", "producerTask": "Window"}}
    for step in ("Transform", "Trainer"):
        assert tasks[step]["inputs"]["parameters"]["examples"] == window
    assert "AnomalyGate" in tasks["Window"]["dependentTasks"]
    evaluated = tasks["Evaluator"]["inputs"]["artifacts"]["examples"]["taskOutputArtifact"]
    assert evaluated["producerTask"] == "ExampleGen"
