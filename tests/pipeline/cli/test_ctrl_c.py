"""Ctrl-C at the command, in each of the components that take long: the real pipeline."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import ml_metadata
import psutil
import pytest
from ml_metadata.proto import metadata_store_pb2

from stagecraft.pipeline.local import layout

pytestmark = pytest.mark.slow

SETTINGS = (
    "data.sample_train=20000",
    "data.sample_test=100",
    "data.shards=4",
    "train.steps=100000",
    "train.batch_size=32",
)


def interrupted_in(node: str, after: float, output: pathlib.Path) -> tuple[int, float, list[str]]:
    """Exit code, seconds from Ctrl-C to the end, and lines shown.

    ``after`` seconds from the node's start, so that it is at its work.
    """
    command = [pathlib.Path(sys.executable).with_name("stagecraft"), "run", "--output", output]
    for setting in SETTINGS:
        command += ["--set", setting]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ran:
        for line in ran.stdout:
            lines.append(line.strip())
            if line.strip() == f"{node}: running":
                time.sleep(after)
                worker = psutil.Process(ran.pid).children()[0]
                children = [worker, *worker.children(recursive=True)]
                started = time.monotonic()
                ran.send_signal(signal.SIGINT)
        code = ran.wait(timeout=60)
    seconds = time.monotonic() - started
    assert not [child for child in children if child.is_running() and child.status() != "zombie"]
    return code, seconds, lines


def test_ctrl_c_in_each_long_component(tmp_path):
    done: list[str] = []
    for node, after in (("Cifar10ExampleGen", 1.0), ("Transform", 1.0), ("Trainer", 4.0)):
        code, seconds, lines = interrupted_in(node, after, tmp_path)
        assert code == 130, lines
        assert seconds < 10, (node, seconds)
        assert [line for line in lines if line.startswith(f"{node}: interrupted")], lines
        for name in done:
            assert [line for line in lines if line.startswith(f"{name}: cached")], lines
        done = [line.split(":")[0] for line in lines if ": done" in line or ": cached" in line]

        root = layout.pipeline_root(tmp_path)
        assert not [p for p in root.glob(f"{node}/*/*") if p.parent.name != ".system"]
        assert not list(root.glob("*/.system/stateful_working_dir/*"))
        assert last_state(tmp_path) == metadata_store_pb2.Execution.FAILED
    assert "Transform" in done
    assert not [p for p in (tmp_path / "checkpoints").rglob("*") if "tmp" in p.name]


def last_state(output: pathlib.Path) -> int:
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = os.fspath(layout.metadata_db(output))
    config.sqlite.connection_mode = config.sqlite.READONLY
    executions = ml_metadata.MetadataStore(config).get_executions()
    return max(executions, key=lambda execution: execution.id).last_known_state
