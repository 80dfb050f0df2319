import json
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from stagecraft.trainer_module import worker as worker_module
from stagecraft.trainer_module.processes.training_task import TrainingTask

HERE = pathlib.Path(__file__).parent
CLUSTER = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}


class Ended:
    """A worker that has come to its end."""

    def __init__(self, code: int, events: list[dict[str, Any]], log: str):
        self.code, self.events, self.log = code, events, log

    @property
    def message(self) -> str:
        (event,) = [event for event in self.events if event["event"] == "failed"]
        return event["message"]


@pytest.fixture
def worker(tmp_path: pathlib.Path) -> Callable[..., Ended]:
    def run(what: str, *, in_cluster: bool = False) -> Ended:
        process, reader = _start(tmp_path, what, in_cluster)
        with os.fdopen(reader) as pipe:
            events = [json.loads(line) for line in pipe]
        code = process.wait(60)
        assert process.stdin is not None
        process.stdin.close()
        return Ended(code, events, (tmp_path / "log").read_text())

    return run


def _start(
    folder: pathlib.Path, what: str, in_cluster: bool = False
) -> tuple[subprocess.Popen[bytes], int]:
    custom_config = {"settings": {}}
    given = types.SimpleNamespace(
        train_files=what, data_accessor=print, custom_config=custom_config
    )
    task = folder / "task.json"
    task.write_text(TrainingTask("stand_in.run_fn", given).line())
    reader, writer = os.pipe()
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    environment.pop("TF_CONFIG", None)
    if in_cluster:
        environment["TF_CONFIG"] = json.dumps(CLUSTER)
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "stagecraft.trainer_module.worker", task, str(writer)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[writer],
            env=environment,
            start_new_session=True,
        )
    os.close(writer)
    return process, reader


def test_it_does_its_part(worker):
    ended = worker("good")
    assert ended.code == 0, ended.log
    kinds = [event["event"] for event in ended.events if event["event"] != "beat"]
    assert kinds == ["phase", "done"]


@pytest.mark.parametrize(
    ("what", "in_cluster", "code", "message"),
    [
        ("user error", False, 1, "train.model: no such model"),
        ("bug", True, 1, "KeyError: 'weight' (tests/trainer_module/processes/stand_in.py:20)"),
        ("preempted", True, 143, "stopped after step 7"),
    ],
)
def test_it_says_why_it_ends(worker, what, in_cluster, code, message):
    ended = worker(what, in_cluster=in_cluster)
    assert (ended.code, ended.message) == (code, message), ended.log
    assert "Traceback" in ended.log  # for who reads the log


def test_a_foreign_message_has_no_terminal_codes(monkeypatch):
    code, message = worker_module._classify(ValueError("\x1b[1mred\x1b[0m array([1.5, 2.5])"))
    assert (code, message) == (1, "ValueError: red array(shape=(2,), dtype=float64)")
    monkeypatch.setenv("TF_CONFIG", json.dumps(CLUSTER))
    lost = tf.errors.UnavailableError(None, None, "connection reset by peer")
    said = "another process was lost (UnavailableError: connection reset by peer)"
    assert worker_module._classify(lost) == (138, said)
    full = tf.errors.ResourceExhaustedError(None, None, "/data/train-0; Too many open files")
    code, message = worker_module._classify(full)
    assert code == 1 and "/data/train-0" in message and "parallel.isolated" in message


def test_sigterm_with_nothing_to_save(worker):
    ended = worker("terminated")
    assert ended.code == 143
    assert not [event for event in ended.events if event["event"] == "failed"]


def test_it_ends_with_who_started_it(tmp_path):
    process, reader = _start(tmp_path, "forever")
    with os.fdopen(reader) as pipe:
        assert json.loads(pipe.readline()) == {"event": "beat"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == -9  # with its whole group
