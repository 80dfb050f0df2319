"""Real workers, with TFX in them, on the stand-in pipeline."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2

from stagecraft.pipeline.local import layout
from stagecraft.pipeline.local.spec import RunSpec
from stagecraft.pipeline.local.supervisor import Outcome, open_log, supervise
from stagecraft.pipeline.settings import load

pytestmark = pytest.mark.slow

HERE = pathlib.Path(__file__).parent

SUPERVISE = """
import pathlib, sys
from stagecraft.pipeline.local.spec import RunSpec
from stagecraft.pipeline.local.supervisor import open_log, supervise
from stagecraft.pipeline.settings import load
output = pathlib.Path(sys.argv[1])
spec = RunSpec(load("quickstart"), output, create="stand_in:create_pipeline")
with open_log(output / "logs") as log:
    supervise(spec, log, print)
"""


@pytest.fixture
def go(tmp_path, monkeypatch):
    """``go(behaviour, runner)`` runs the stand-in in ``tmp_path`` -> outcome, states."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))

    def go(behaviour=None, runner="local"):
        monkeypatch.setenv("STAND_IN", json.dumps(behaviour or {}))
        states = {}

        def on_event(event):
            if event["kind"] == "node":
                states[event["node"]] = event["state"]

        spec = RunSpec(load("quickstart"), tmp_path, runner, create="stand_in:create_pipeline")
        with open_log(layout.logs(tmp_path)) as log:
            return supervise(spec, log, on_event), states

    return go


def hanging(output):
    """Waits until a node hangs; the worker's process id."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        text = (output / "hanging").read_text() if (output / "hanging").exists() else ""
        if text:
            return int(text)
        time.sleep(0.05)
    raise TimeoutError("no node hangs")


def assert_nothing_left(output, node):
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(layout.metadata_db(output))
    config.sqlite.connection_mode = config.sqlite.READONLY
    executions = ml_metadata.MetadataStore(config).get_executions()
    unfinished = (metadata_store_pb2.Execution.NEW, metadata_store_pb2.Execution.RUNNING)
    assert not [e for e in executions if e.last_known_state in unfinished]
    newest = max(executions, key=lambda execution: execution.id)
    assert newest.last_known_state == metadata_store_pb2.Execution.FAILED
    assert not list(layout.pipeline_root(output).glob(f"{node}/*/*/half"))


def gone(pid):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        stat = pathlib.Path(f"/proc/{pid}/stat")
        if not stat.exists() or ") Z " in stat.read_text():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("runner", ["local", "beam"])
def test_ctrl_c_in_a_beam_step_ends_it_within_seconds(go, tmp_path, runner):
    sent = []

    def interrupt():
        hanging(tmp_path)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome, states = go({"Count": "hang"}, runner)
    thread.join()
    assert time.monotonic() - sent[0] < 8
    assert outcome == Outcome("interrupted", signal=signal.SIGINT)
    assert states == {"Make": "done", "Count": "interrupted"}
    assert gone(hanging(tmp_path))
    assert_nothing_left(tmp_path, "Count")


def test_a_killed_worker_is_swept_after(go, tmp_path):
    outcome, states = go({"Count": "kill"})
    assert outcome.status == "died"
    assert states == {"Make": "done", "Count": "running"}
    assert_nothing_left(tmp_path, "Count")


def test_a_killed_supervisor_leaves_no_orphan_and_keeps_others_out_until_then(
    go, tmp_path, monkeypatch
):
    monkeypatch.setenv("STAND_IN", json.dumps({"Count": "hang"}))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", SUPERVISE, tmp_path]
    with subprocess.Popen(command, env=environment) as supervisor:
        worker = hanging(tmp_path)
        outcome, _ = go()
        assert f"{tmp_path} is in use" in outcome.cause
        supervisor.kill()
    assert gone(worker)
    assert_nothing_left(tmp_path, "Count")
    assert list(temporary.iterdir()) == []
