"""Whoever started a job is ended, or killed: the job's pods end, too, and nobody else's fault."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from stagecraft.components.kubernetes import worker
from stagecraft.components.kubernetes.job_folder import heartbeat
from stagecraft.trainer_module.processes.training_task import TrainingTask

SERVED = {"strategy": "parameter_server", "workers": 1, "ps": 1}

STEP = """
import json, pathlib, sys
from stagecraft.trainer_module.processes import preemption
preemption.handle_sigterm()
from stagecraft.components.kubernetes.launch import launch
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import ParallelSettings
from stagecraft.components.kubernetes.job_folder import heartbeat
folder = pathlib.Path(sys.argv[2])
folder.mkdir(parents=True)
parallel = ParallelSettings.model_validate(json.loads(sys.argv[3]))
job_folder = {"folder": str(folder), "local": str(folder)}
with heartbeat.renewed(str(folder), 3.0):
    launch.run(TrainingTask.parsed(sys.argv[1]), parallel, job_folder)
"""
"""What the Trainer's Executor does in the end, without TFX, whose import takes its time."""


class Launcher:
    """A process that starts a job and follows it."""

    def __init__(self, one: Any, parallel: dict[str, Any]) -> None:
        self.folder = one.volume / "jobs" / "train-1"
        flat = {"train_model": "user_models:tiny", "train_batch_size": 8, "train_steps": 4}
        flat |= {f"parallel_{name}": value for name, value in parallel.items()}
        given = types.SimpleNamespace(
            custom_config={"settings": flat | {"parallel_launcher": "kubernetes"}},
            working_dir=str(one.volume / "checkpoints" / "key"),
        )
        task = TrainingTask("stub_training.hangs", given)
        arguments = (task.line(), str(self.folder), json.dumps(parallel))
        self.process = subprocess.Popen([sys.executable, "-c", STEP, *arguments])


@pytest.fixture
def launcher(step: Any, cluster: Any) -> Iterator[Launcher]:
    started = Launcher(step(), SERVED)
    yield started
    started.process.kill()
    started.process.wait()


def hanging(cluster: Any) -> bool:
    return sum(pod.lines[-1:] != [] and "hangs" in pod.lines[-1] for pod in cluster.running()) == 3


def deletes(server: Any) -> list[str]:
    return [each.path for each in server.requests if each.method == "DELETE"]


def test_sigterm(launcher, cluster, server):
    cluster.wait_for(lambda: hanging(cluster))
    launcher.process.terminate()
    begun = time.monotonic()
    cluster.wait_for(lambda: deletes(server))
    assert time.monotonic() - begun < 1
    assert launcher.process.wait() == 143
    cluster.wait_for(lambda: not cluster.running())
    assert [path.rpartition("/")[2] for path in deletes(server)] == ["train-1"]
    [options] = [each.body for each in server.requests if each.method == "DELETE"]
    assert options["propagationPolicy"] == "Background" and options["preconditions"]["uid"]


@pytest.mark.slow
def test_sigterm_while_the_api_does_not_answer(launcher, cluster, server):
    cluster.wait_for(lambda: hanging(cluster))
    server.is_down = True
    launcher.process.terminate()
    assert launcher.process.wait() == 143
    assert len(deletes(server)) == 1
    assert len(cluster.running()) == 3


def test_sigkill(launcher, cluster, server):
    """Those that serve for ever end, too; and what the controller starts in their place."""
    cluster.wait_for(lambda: hanging(cluster))
    launcher.process.kill()
    launcher.process.wait()
    assert deletes(server) == []
    before = cluster.pods
    cluster.wait_for(lambda: cluster.conditions() == ["Failed"])
    assert not cluster.running()
    assert {pod.exit_code for pod in before} <= {143, 1}
    after = cluster.pods[len(before) :]
    assert any("lease.json: expired" in line for pod in after for line in pod.lines)


def pod(folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", worker.__name__, str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_pod_that_starts_when_its_lease_is_over(tmp_path):
    heartbeat.renew(str(tmp_path), -1.0)
    ended = pod(tmp_path)
    assert (ended.returncode, ended.stdout) == (
        1,
        f"{tmp_path / heartbeat.NAME}: expired: no Trainer step waits for this training run\n",
    )


def test_a_pod_without_the_volume(tmp_path):
    ended = pod(tmp_path / "nowhere")
    assert ended.returncode == 1
    assert str(tmp_path / "nowhere" / heartbeat.NAME) in ended.stdout


def test_a_lease_that_cannot_be_read_for_a_while(tmp_path):
    """It is as it was when it was read."""
    program = (
        "import sys, threading\n"
        "from stagecraft.components.kubernetes.job_folder import heartbeat\n"
        "heartbeat.end_with(sys.argv[1], every=0.05)\n"
        "print('begun', flush=True)\n"
        "threading.Event().wait()\n"
    )
    heartbeat.renew(str(tmp_path), 60)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    (tmp_path / heartbeat.NAME).write_text("{")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    heartbeat.renew(str(tmp_path), -1.0)
    assert process.wait(30) == -signal.SIGTERM
    process.stdout.close()


def test_the_lease_is_renewed_as_long_as_the_training_is_followed(tmp_path):
    with heartbeat.renewed(str(tmp_path), 1.0):
        first = (tmp_path / heartbeat.NAME).stat().st_mtime_ns
        deadline = time.monotonic() + 30
        while (tmp_path / heartbeat.NAME).stat().st_mtime_ns == first:
            assert time.monotonic() < deadline
            os.sched_yield()
        assert 0 < heartbeat.seconds_left(str(tmp_path)) <= 1
    assert [path.name for path in tmp_path.iterdir()] == [heartbeat.NAME]
