"""The supervisor with a worker that only pretends."""

import json
import pathlib
import signal
import subprocess
import tempfile

import pytest
from processes import is_alive, signals

from stagecraft.pipeline.local import supervisor
from stagecraft.pipeline.local.protocol import RunSpec
from stagecraft.pipeline.local.supervisor import Outcome, open_log, supervise
from stagecraft.pipeline.settings import load

OK = {"kind": "end", "status": "ok", "cause": None, "report": {"blessed": True}}
JOB = {"name": "mine-1", "engine": "Flink"}
RUNNING = {"kind": "job", "state": "running", "job": JOB}
PROGRESS = {"kind": "progress", "phase": "write", "done": 1, "total": 2}


@pytest.fixture
def go(tmp_path, monkeypatch):
    """``go(*steps)`` -> outcome, events; see fake_worker.py."""
    fake = pathlib.Path(__file__).parent / "fake_worker.py"
    monkeypatch.setattr(supervisor, "_WORKER", (str(fake),))
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.5)

    def go(*steps):
        monkeypatch.setenv("FAKE", json.dumps(steps))
        events = []
        with open_log(tmp_path) as log:
            outcome = supervise(RunSpec(load("quickstart"), tmp_path), log, events.append)
        return outcome, events

    return go


def log_text(folder):
    [log] = (folder / "logs").iterdir()
    return log.read_text()


def test_events_arrive_and_noise_goes_to_the_log(go, tmp_path):
    outcome, events = go(PROGRESS, "noise", OK)
    assert outcome == Outcome("ok", report={"blessed": True})
    assert events == [PROGRESS, OK]
    assert "noise on stdout" in log_text(tmp_path)
    assert "noise on stderr" in log_text(tmp_path)


def test_a_failure_has_its_cause(go):
    failed = {"kind": "end", "status": "failed", "cause": "why", "report": {}}
    assert go(failed)[0] == Outcome("failed", cause="why")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("kill", "SIGKILL, most likely by the kernel, because memory ran out"),
        ("segfault", "SIGSEGV, which is a crash in native code"),
        ("leave", "exit code 4"),
    ],
)
def test_a_worker_that_dies_is_told_plainly(go, step, said):
    outcome, _ = go(PROGRESS, step)
    assert outcome.status == "died"
    assert said in outcome.cause


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_signal_stops_the_worker_and_what_it_started(go, tmp_path, number):
    stock = signal.getsignal(number)
    with signals(tmp_path / "hanging", number):
        outcome, events = go("child", "hang")
    assert outcome == Outcome("interrupted", signal=number)
    assert events[-1]["status"] == "interrupted"
    assert signal.getsignal(number) == stock
    for name in ("hanging", "child"):
        assert not is_alive(int((tmp_path / name).read_text()))


@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGINT, signal.SIGINT)])
def test_a_worker_that_does_not_stop_is_killed(go, tmp_path, numbers):
    with signals(tmp_path / "hanging", *numbers):
        outcome, _ = go("child", "deaf")
    assert outcome == Outcome("interrupted", signal=signal.SIGINT)
    for name in ("hanging", "child"):
        assert not is_alive(int((tmp_path / name).read_text()))


def test_a_run_that_was_over_before_the_signal_is_not_interrupted(go, tmp_path):
    with signals(tmp_path / "hanging", signal.SIGINT):
        outcome, _ = go(OK, "deaf")
    assert outcome.status == "ok"


def test_signals_that_were_ignored_stay_ignored(go, tmp_path, monkeypatch):
    stock = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with signals(tmp_path / "hanging", signal.SIGHUP, signal.SIGTERM):
            outcome, _ = go("hang")
    finally:
        signal.signal(signal.SIGHUP, stock)
    assert outcome.signal == signal.SIGTERM


def test_a_worker_that_cancels_a_job_has_more_time(go, tmp_path):
    with signals(tmp_path / "hanging", signal.SIGINT):
        outcome, events = go(RUNNING, "cancel")
    assert outcome == Outcome("interrupted", signal=signal.SIGINT)
    assert [event["state"] for event in events if event["kind"] == "job"][-1] == "ended"


def test_a_job_that_may_still_run_is_said(go):
    left = {**RUNNING, "state": "left", "left": "the job mine-1 may still run"}
    assert go(RUNNING, left, OK)[0].left == ("the job mine-1 may still run",)


@pytest.mark.parametrize("step", ["kill", "segfault"])
def test_the_job_of_a_dead_worker_is_cancelled(go, tmp_path, monkeypatch, step):
    """By another process, which gets the job on its standard input."""
    monkeypatch.setattr(supervisor, "_CANCEL", ("this", "module"))
    ran = []

    def record(words, log, timeout, input=b""):
        ran.append((words[0], json.loads(input or "null")))
        return subprocess.CompletedProcess(words, 0, stdout=b"it still runs\n")

    monkeypatch.setattr(supervisor, "_ran", record)
    outcome, _ = go(RUNNING, step)
    assert ran == [("this", JOB), ("stagecraft.pipeline.local.sweep", None)]
    assert outcome.status == "died"
    assert outcome.left == ("it still runs",)


def test_a_job_that_nobody_could_cancel_is_said(go, monkeypatch):
    monkeypatch.setattr(supervisor, "_CANCEL", ("no.such.module",))
    assert "mine-1" in go(RUNNING, "kill")[0].left[0]


@pytest.mark.parametrize("last", [OK, "kill", "segfault"])
def test_temporary_files_of_the_run_are_removed(go, tmp_path, monkeypatch, last):
    """However the process ends: TensorFlow leaves seven a run to an exit handler."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    go("scratch", last)
    where = pathlib.Path((tmp_path / "scratch").read_text())
    assert where.is_relative_to(temporary)
    assert list(temporary.iterdir()) == []
