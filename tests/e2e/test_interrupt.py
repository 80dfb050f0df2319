"""Ctrl-C in the middle of a component: nothing half-done stays, the next run goes on."""

import json
import signal
import subprocess
import time

import psutil
import pytest
from past_runs import executions
from support import command, run

SETTINGS = (
    "data.sample_train=1000",
    "data.sample_test=100",
    "data.shards=4",
    "train.steps=200",
    "parallel.strategy=multi_worker_mirrored",
    "parallel.workers=2",
    "evaluate.min_accuracy=0",
    "evaluate.better_than_constant=false",
)
LARGE = ("data.sample_train=20000",)  # takes a component of Beam's long enough to be caught


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("interrupt") / "out"


@pytest.mark.parametrize(
    "node",
    [
        # pipeline/local/test_worker.py has a step of Beam's, in less time.
        pytest.param("Cifar10ExampleGen", marks=pytest.mark.full),
        pytest.param("Transform", marks=pytest.mark.full),
        pytest.param("Trainer", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_leaves_nothing_behind(output, node):
    words = command(output, settings=SETTINGS if node == "Trainer" else SETTINGS + LARGE)
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=output.parent,
        start_new_session=True,
    )
    assert process.stderr is not None
    wanted = "  step " if node == "Trainer" else f"{node}: running"
    for line in process.stderr:
        if line.startswith(wanted):
            break
    family = [process.pid, *(p.pid for p in psutil.Process(process.pid).children(recursive=True))]
    time.sleep(0.5)  # into the middle of the component
    interrupted = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - interrupted < 30
    assert not [pid for pid in family if psutil.pid_exists(pid)]

    found = executions(output)
    assert not [state for _, state in found if state == "RUNNING"]
    assert found[-1] == (node, "FAILED")
    folder = output / "pipeline_root" / node
    leftovers = [path for path in folder.rglob("*") if path.is_file()]
    assert leftovers == []
    if node == "Trainer":
        assert _checkpoints(
            output
        )  # there was no evaluation yet: it has saved because it was asked


@pytest.mark.full
@pytest.mark.slow
def test_the_next_run_goes_on_from_the_cache(output):
    stopped = _checkpoints(output)[-1]
    done = run(output, settings=SETTINGS)
    assert done.states["Cifar10ExampleGen"] == "cached"
    assert done.states["Transform"] == "cached"
    assert done.states["Trainer"] == "done"
    assert done.result["pushed"]
    (notes,) = output.glob("pipeline_root/Trainer/model_run/*/record.json")
    assert json.loads(notes.read_text())["resumed_from"] == stopped


def _checkpoints(output):
    """Steps, of the only training."""
    return sorted(int(p.name) for p in output.glob("checkpoints/*/*") if p.name.isdecimal())
