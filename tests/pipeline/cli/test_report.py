"""``stagecraft report``: what is written where, and what is refused."""

from __future__ import annotations

import pathlib

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as pb


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
    for each in (first, second):
        failed = pb.Execution(type_id=kind, last_known_state=pb.Execution.FAILED)
        store.put_execution(failed, [], store.get_contexts_by_id([each, node]))
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
    assert "Not evaluated" in text
    assert "Cifar10ExampleGen" in text and "failed" in text


def test_another_run_into_another_file(stagecraft, run, tmp_path):
    ran = stagecraft("report", str(run), "--run-id", "first", "--output", str(tmp_path / "a.html"))
    assert ran.code == 0
    assert f"report   {tmp_path / 'a.html'}" in ran.stdout.splitlines()
    assert "run first" in (tmp_path / "a.html").read_text()
    assert not (run / "report.html").exists()


def test_a_run_that_is_not_there(stagecraft, run):
    ran = stagecraft("report", str(run), "--run-id", "third")
    assert ran.code == 1
    assert "there is no run third; the newest are second, first" in ran.stderr


def test_a_folder_that_no_run_wrote(stagecraft, tmp_path):
    ran = stagecraft("report", str(tmp_path), "--json")
    assert ran.code == 1
    assert "give the folder that stagecraft run wrote, such as runs/quickstart" in ran.stderr
    assert "no run left anything here" in ran.last_line["error"]


def test_a_file_that_cannot_be_written(stagecraft, run):
    ran = stagecraft("report", str(run), "--output", str(run / "no" / "such" / "page.html"))
    assert ran.code == 1
    assert "cannot be written (No such file or directory); give another --output" in ran.stderr
