"""Faults of Flink during a run: no job is left, the cause has a name, the same command finishes."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from beam_engines.workers import command
from past_runs import executions
from support import TINY, command as run_command

SETTINGS = (*TINY, "report.enabled=false")
STEP = "StatisticsGen"
NAMED = {
    "interrupt": "",
    "worker": "a Beam worker process died",
    "engine process": "a process of the engine died",
    "job server": "the job server",
}
"""What the error of a fault names."""

SECONDS = 500

pytestmark = pytest.mark.full


def settings_file(path, flink, boot, parallelism=2):
    """Settings of a run whose TaskManagers start workers."""
    given = flink.arguments("PROCESS", json.dumps({"command": str(boot)}))
    arguments = [
        *(each for each in given if "parallel" not in each),
        f"--parallelism={parallelism}",
        f"--flink_master={flink.rest}",
    ]
    path.write_text(f"name: quickstart\nbeam: {{runner: flink, args: {json.dumps(arguments)}}}\n")
    return path


def start(output, settings):
    """A run in a process of its own."""
    return subprocess.Popen(
        run_command(output, "--config", settings, "--to", "AnomalyGate", settings=SETTINGS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=output.parent,
        start_new_session=True,
    )


def wait_for_step(process):
    """Waits until a worker has done tasks of the step's job."""
    running = False
    for line in process.stderr:
        running = running or line.startswith(f"{STEP}: running")
        if running and re.search(r" [1-9]\d* of \d+ tasks done", line):
            return
    raise AssertionError(process.stdout.read())


def _running(flink):
    return {job for job, state in flink.jobs().items() if state == "RUNNING"}


def finished(process):
    """Code and result of a run, from its last line."""
    stdout, stderr = process.communicate(timeout=SECONDS)
    lines = stdout.splitlines()
    assert lines, stderr
    return process.returncode, json.loads(lines[-1])


@pytest.mark.parametrize("fault", ["interrupt", "kill", "worker", "engine process", "job server"])
def test_a_fault(fault, flink_cluster, tmp_path):
    output, flink, boot = tmp_path / "out", flink_cluster, command(tmp_path)
    settings = settings_file(tmp_path / "flink.yaml", flink, boot)
    process = start(output, settings)
    wait_for_step(process)
    if fault == "interrupt":
        process.send_signal(signal.SIGTERM)
    elif fault == "kill":
        process.kill()
    elif fault == "worker":
        workers = flink.workers()
        assert workers
        for each in workers:
            each.kill()
    elif fault == "engine process":
        flink.task_managers[0].kill()
        # The other one has one slot.
        settings_file(settings, flink, boot, parallelism=1)
    else:
        flink.job_server.kill()

    if fault == "kill":
        process.communicate(timeout=SECONDS)
    else:
        code, result = finished(process)
        assert code == (143 if fault == "interrupt" else 1), result
        assert NAMED[fault] in result["error"], result["error"]
    deadline = time.monotonic() + 60
    while _running(flink):
        assert time.monotonic() < deadline, flink.jobs()
        time.sleep(0.5)
    if fault != "kill":  # the next run sees to it
        assert (STEP, "FAILED") in executions(output)
        folder = output / "pipeline_root" / STEP
        assert not [path for path in folder.rglob("*") if path.is_file()]

    if fault == "job server":
        flink.endpoint = flink.start_job_server()
        settings_file(settings, flink, boot)
    code, result = finished(start(output, settings))
    assert code == 0, result
    states = {name: node["state"] for name, node in result["components"].items()}
    assert states["Cifar10ExampleGen"] == "cached"
    assert not _running(flink)
    assert not os.path.exists(output / "pipeline_root" / ".temp")
