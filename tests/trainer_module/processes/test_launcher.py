"""Where the processes of a training run, and what the chief's events become."""

import json
import logging
import os
from typing import Any

import pytest

from stagecraft.trainer_module.processes import events, launcher
from stagecraft.trainer_module.settings import ParallelSettings

TWO: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


@pytest.mark.parametrize(
    ("parallel", "config", "expected"),
    [
        ({}, "", False),
        ({"launcher": "local"}, "", True),
        (TWO, "", True),
        (TWO, '{"cluster": {}}', False),  # somebody else has started this process
        (TWO | {"launcher": "in_process"}, "", False),
        (TWO | {"launcher": "local"}, '{"cluster": {}}', True),
        ({"strategy": "parameter_server"}, "", True),
        ({"strategy": "grid", "stages": 2}, "", False),
        ({"evaluator": True}, "", True),
    ],
)
def test_who_starts_them(parallel, config, expected, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    assert launcher.is_local(ParallelSettings(**parallel)) == expected


def test_a_warning_of_a_process_is_one_of_the_launcher(caplog):
    """Its text and its level come through the pipe."""
    reader, writer = os.pipe()
    sent = logging.LogRecord("stagecraft", logging.WARNING, "", 0, "waiting %d s", (3,), None)
    sent.progress = {"phase": "wait", "seconds": 3}
    events._Pipe(writer).emit(sent)
    os.close(writer)
    with open(reader) as lines:
        [line] = lines
    with caplog.at_level(logging.INFO, "stagecraft.progress"):
        launcher._show(json.loads(line))
    [shown] = caplog.records
    assert (shown.levelno, shown.getMessage()) == (logging.WARNING, "waiting 3 s")
    assert shown.progress == {"phase": "wait", "seconds": 3}


def test_progress_is_that_of_the_chief(caplog):
    message = "worker 1 was ended by SIGKILL"
    with caplog.at_level(logging.INFO, "stagecraft.progress"):
        launcher._show({"event": "beat"})
        for phase, step, text in (("resume", 2, "resuming"), ("train", 3, "step 3 of 9")):
            fields = {"phase": phase, "step": step, "total": 9, "text": text, "level": logging.INFO}
            launcher._show({"event": "progress", **fields})
        launcher._show({"event": "restart", "number": 1, "message": message})
    resumed, step, restart = (record.progress for record in caplog.records)
    assert resumed == {"phase": "resume", "step": 2, "total": 9}
    assert caplog.messages[:2] == ["resuming", "step 3 of 9"]
    assert step == {"phase": "train", "step": 3, "total": 9}
    assert restart["phase"] == "restart"
    assert restart["message"] == message
