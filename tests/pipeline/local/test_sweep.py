"""The sweep, on a metadata file made by hand; of TFX only the form of a note."""

import json
import sys

import past_runs
import pytest
from google.protobuf import json_format
from past_runs import State
from processes import ran
from tfx.proto.orchestration import execution_result_pb2

from stagecraft.pipeline.local import layout
from stagecraft.pipeline.local.sweep import sweep


class Output(past_runs.Output):
    """An output folder with executions and folders as TFX creates them."""

    def __init__(self, folder, pipeline="mine"):
        super().__init__(folder, pipeline)
        self.root = layout.pipeline_root(folder)

    def add(self, node, state):
        """An execution, its output with a file in it, and its working folders."""
        execution_id = self.step(self._context("pipeline", self.pipeline), node, state).id
        system = self.root / node / ".system"
        for folder in (
            self.root / node / "examples" / str(execution_id) / "Split-train",
            system / "executor_execution" / str(execution_id) / ".temp",
            system / "stateful_working_dir" / f"{execution_id}-uuid",
            system / "driver_execution" / f"{execution_id}000",
        ):
            folder.mkdir(parents=True)
            (folder / "file").write_text("half")
        return execution_id

    def state(self, execution_id):
        [execution] = self.store.get_executions_by_id([execution_id])
        return execution.last_known_state

    def noted(self, execution_id):
        [execution] = self.store.get_executions_by_id([execution_id])
        return json.loads(execution.custom_properties["__execution_result__"].string_value)

    def folders(self, node, execution_id):
        found = [
            *self.root.glob(f"{node}/*/{execution_id}"),
            *self.root.glob(f"{node}/.system/*/{execution_id}"),
        ]
        return sorted(str(path.relative_to(self.root / node)) for path in found)

    def sweep(self, cause=""):
        return sweep(layout.metadata_db(self.folder), self.root, self.pipeline, cause)


@pytest.fixture
def output(tmp_path):
    return Output(tmp_path)


def test_unfinished_executions_end_failed_without_folders(output):
    done = output.add("Gen", State.COMPLETE)
    running = output.add("Gen", State.RUNNING)
    new = output.add("Trainer", State.NEW)
    assert sorted(output.sweep()) == ["Gen", "Trainer"]
    assert [output.state(i) for i in (done, running, new)] == [
        State.COMPLETE,
        State.FAILED,
        State.FAILED,
    ]
    kept = [".system/executor_execution/1", "examples/1"]
    assert output.folders("Gen", done) == kept
    assert output.folders("Gen", running) == output.folders("Trainer", new) == []
    assert not list(output.root.glob("*/.system/stateful_working_dir/*"))
    assert output.sweep() == []


def test_why_is_noted_as_tfx_does(output):
    stopped = output.add("Trainer", State.RUNNING)
    output.sweep()
    failed = output.add("Gen", State.RUNNING)
    output.sweep(cause="memory ran out")
    assert output.noted(stopped) == {"resultMessage": "stopped before its end", "code": 1}
    assert output.noted(failed) == {"resultMessage": "memory ran out", "code": 2}
    [execution] = output.store.get_executions_by_id([stopped])
    assert json_format.Parse(
        execution.custom_properties["__execution_result__"].string_value,
        execution_result_pb2.ExecutionResult(),
    ) == execution_result_pb2.ExecutionResult(result_message="stopped before its end", code=1)


def test_other_pipelines_are_left_alone(output, tmp_path):
    theirs = Output(tmp_path, "theirs").add("Gen", State.RUNNING)
    assert output.sweep() == []
    assert output.state(theirs) == State.RUNNING
    assert output.folders("Gen", theirs)


def test_empty_driver_folders_go(output):
    output.add("Gen", State.COMPLETE)
    empty = output.root / "Gen" / ".system" / "driver_execution" / "17"
    empty.mkdir()
    output.sweep()
    assert not empty.exists()
    assert (output.root / "Gen" / ".system" / "driver_execution" / "1000").exists()


def test_what_cannot_be_removed_stays_for_the_next_sweep(output, monkeypatch):
    running = output.add("Gen", State.RUNNING)
    monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
    assert output.sweep() == []
    assert output.state(running) == State.RUNNING
    monkeypatch.undo()
    assert output.sweep() == ["Gen"]


def test_there_may_be_nothing_yet(tmp_path):
    assert sweep(tmp_path / "metadata.db", tmp_path / "pipeline_root", "mine") == []
    assert not (tmp_path / "metadata.db").exists()


def test_it_runs_from_outside_without_tfx(output):
    running = output.add("Gen", State.RUNNING)
    code = (
        "import sys; from stagecraft.pipeline.local import sweep; "
        f"sys.argv = ['sweep', {str(output.folder)!r}, 'mine', 'a crash']; sweep.main(); "
        "print([m for m in ('tfx', 'tensorflow', 'apache_beam') if m in sys.modules])"
    )
    done = ran(sys.executable, "-W", "ignore", "-c", code)
    assert done.stdout.strip() == "[]"
    assert output.state(running) == State.FAILED
    assert output.noted(running)["resultMessage"] == "a crash"
