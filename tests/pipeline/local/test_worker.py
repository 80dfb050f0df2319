"""Real workers, with TFX in them, on the stand-in pipeline."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from past_runs import executions
from processes import gone, signals, written

from stagecraft.pipeline.local import layout
from stagecraft.pipeline.local.protocol import RunSpec
from stagecraft.pipeline.local.supervisor import Outcome, open_log, supervise
from stagecraft.pipeline.settings import load

pytestmark = pytest.mark.slow

HERE = pathlib.Path(__file__).parent

SUPERVISE = """
import pathlib, sys
from stagecraft.pipeline.local.protocol import RunSpec
from stagecraft.pipeline.local.supervisor import open_log, supervise
from stagecraft.pipeline.settings import load
output = pathlib.Path(sys.argv[1])
spec = RunSpec(load("quickstart"), output, create="stand_in:create_pipeline")
with open_log(output) as log:
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
        with open_log(tmp_path) as log:
            return supervise(spec, log, on_event), states

    return go


def hanging(output):
    """Waits until a node hangs; the worker's process id."""
    return int(written(output / "hanging"))


def assert_nothing_left(output):
    states = [state for _, state in executions(output)]
    assert not {"NEW", "RUNNING"} & set(states)
    assert states[-1] == "FAILED"
    assert not list(layout.pipeline_root(output).glob("Count/*/*/half"))


@pytest.mark.parametrize("runner", ["local", "beam"])
def test_ctrl_c_in_a_beam_step_ends_it_within_seconds(go, tmp_path, runner):
    with signals(tmp_path / "hanging", signal.SIGINT):
        outcome, states = go({"Count": "hang"}, runner)
    assert time.time() - (tmp_path / "hanging").stat().st_mtime < 8
    assert outcome == Outcome("interrupted", signal=signal.SIGINT)
    assert states == {"Make": "done", "Count": "interrupted"}
    assert gone(hanging(tmp_path))
    assert_nothing_left(tmp_path)


def test_a_killed_worker_is_swept_after(go, tmp_path):
    outcome, states = go({"Count": "kill"})
    assert outcome.status == "died"
    assert states == {"Make": "done", "Count": "running"}
    assert_nothing_left(tmp_path)


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
        assert outcome.status == "in use" and str(tmp_path) in outcome.cause
        supervisor.kill()
    assert gone(worker)
    assert_nothing_left(tmp_path)
    assert list(temporary.iterdir()) == []
