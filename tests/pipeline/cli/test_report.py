"""``stagecraft report``: what is written where, and what is refused."""

from __future__ import annotations

import pathlib

import ml_metadata
import pytest
from google.protobuf import json_format
from ml_metadata.proto import metadata_store_pb2 as pb
from tfx.proto.orchestration import execution_result_pb2


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """The folder of two runs, of which each came to nothing."""
    folder = tmp_path / "runs" / "quickstart"
    folder.mkdir(parents=True)
    config = pb.ConnectionConfig()
    config.sqlite.filename_uri = str(folder / "metadata.db")
    store = ml_metadata.MetadataStore(config)
    kinds = {
        name: store.put_context_type(pb.ContextType(name=name))
        for name in ("pipeline", "pipeline_run", "node")
    }
    pipeline, first, second, node = store.put_contexts(
        [
            pb.Context(name="quickstart", type_id=kinds["pipeline"]),
            pb.Context(name="first", type_id=kinds["pipeline_run"]),
            pb.Context(name="second", type_id=kinds["pipeline_run"]),
            pb.Context(name="quickstart.Cifar10ExampleGen", type_id=kinds["node"]),
        ]
    )
    store.put_parent_contexts(
        [pb.ParentContext(child_id=each, parent_id=pipeline) for each in (first, second)]
    )
    kind = store.put_execution_type(pb.ExecutionType(name="Cifar10ExampleGen"))
    cause = {"result_message": "data.source: /gone: no such file"}
    for each, state in ((first, pb.Execution.RUNNING), (second, pb.Execution.FAILED)):
        execution = pb.Execution(type_id=kind, last_known_state=state)
        if state == pb.Execution.FAILED:
            noted = json_format.MessageToJson(execution_result_pb2.ExecutionResult(**cause))
            execution.custom_properties["__execution_result__"].string_value = noted
        store.put_execution(execution, [], store.get_contexts_by_id([each, node]))
    (folder / "logs").mkdir()
    (folder / "logs" / "20260102-030405.log").write_text("quickstart: run second\n")
    return folder


def test_the_newest_run(stagecraft, run):
    ran = stagecraft("report", str(run), "--json")
    assert ran.code == 0
    assert ran.last_line == {
        "run_id": "second",
        "report": str(run / "report.html"),
        "metrics": {},
        "blessed": False,
        "pushed": None,
    }
    text = (run / "report.html").read_text()
    assert "run second" in text
    assert "<h1>Cifar10ExampleGen failed</h1>" in text
    assert "data.source: /gone: no such file</p>" in text
    assert "logs/20260102-030405.log</code>" in text
    verdict = "verdict  Cifar10ExampleGen failed: data.source: /gone: no such file."
    assert verdict in stagecraft("report", str(run)).stdout.splitlines()


def test_an_older_run_does_not_take_the_newest_ones_place(stagecraft, run, tmp_path):
    stagecraft("report", str(run))
    ran = stagecraft("report", "fir")  # below runs/, cut short
    assert ran.code == 0
    page = pathlib.Path("runs", "quickstart", "report-first.html")
    assert f"report   {page}" in ran.stdout.splitlines()
    assert "run first" in (tmp_path / page).read_text()
    assert "run second" in (run / "report.html").read_text()


def test_a_run_that_was_killed_was_stopped(stagecraft, run, tmp_path):
    page = tmp_path / "a.html"
    ran = stagecraft("report", f"{run}@first", "--output", str(page))
    assert f"report   {page}" in ran.stdout.splitlines()
    said = "Cifar10ExampleGen was stopped. "
    assert f"verdict  {said}" in ran.stdout
    assert "<h1>Cifar10ExampleGen was stopped</h1>" in page.read_text()
    assert said in page.read_text()
    assert "Log: <code>" not in page.read_text()  # no log says that it is this run's


def test_a_run_that_is_not_there(stagecraft, run):
    ran = stagecraft("report", f"{run}@third")
    assert ran.code == 1
    assert "there is no run third; the newest are second, first" in ran.stderr
    ran = stagecraft("report", "quickstrat")
    assert "quickstrat: there is no such folder, and no run below runs/ whose ID" in ran.stderr


def test_a_folder_that_no_run_wrote(stagecraft, tmp_path):
    ran = stagecraft("report", str(tmp_path), "--json")
    assert ran.code == 1
    assert "give the folder that stagecraft run wrote, such as runs/quickstart" in ran.stderr
    assert "no run left anything here" in ran.last_line["error"]


def test_a_file_that_cannot_be_written(stagecraft, run):
    ran = stagecraft("report", str(run), "--output", str(run / "no" / "such" / "page.html"))
    assert ran.code == 1
    assert "cannot be written (No such file or directory); give another --output" in ran.stderr
