"""Jobs on Flink in processes of its own: what a stopped client leaves, and what faults say."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from beam_engines.flink import Flink, standalone
from beam_engines.workers import command
from processes import written

pytestmark = pytest.mark.full

RUNNER = "--runner=stagecraft.contrib.beam_engines.job_server_runners.FlinkRunner"

CLIENT = """
import sys
import apache_beam as beam

class Wait(beam.DoFn):
    def __init__(self, folder):
        self._folder = folder

    def process(self, element):
        import os, time
        with open(os.path.join(self._folder, "worker"), "w") as file:
            file.write(str(os.getpid()))
        while True:
            time.sleep(0.1)

try:
    with beam.Pipeline(argv=sys.argv[2:]) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.ParDo(Wait(sys.argv[1]))
except BaseException as error:
    print(type(error).__name__, getattr(error, "fault", ""), sep=":", flush=True)
    raise
"""


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory):
    """A cluster for the tests that do not damage it."""
    with standalone(tmp_path_factory.mktemp("flink")) as flink:
        yield flink


class Client:
    """A process with a job whose only element never ends."""

    def __init__(self, flink: Flink, folder: pathlib.Path):
        self._log = (folder / "client.log").open("w+")
        self.flink = flink
        program = json.dumps({"command": str(command(folder))})
        arguments = flink.arguments("PROCESS", program)
        words = [RUNNER, *arguments, f"--flink_master={flink.rest}"]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLIENT, folder, *words],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self.worker = int(written(folder / "worker"))

    def end(self) -> str:
        """Waits for the end of the client; returns what it printed."""
        self.process.wait(120)
        self._log.seek(0)
        return self._log.read()

    def states(self) -> set[str]:
        """States that jobs have now."""
        return set(self.flink.jobs().values())


@pytest.fixture
def client(request, tmp_path):
    client = Client(request.getfixturevalue(request.param), tmp_path)
    yield client
    client.process.kill()
    client.process.wait()


on_shared_cluster = pytest.mark.parametrize("client", ["shared_cluster"], indirect=True)
on_its_own_cluster = pytest.mark.parametrize("client", ["flink_cluster"], indirect=True)


@on_shared_cluster
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_client_leaves_no_job(client, number):
    client.process.send_signal(number)
    assert "KeyboardInterrupt" in client.end()
    assert client.states() <= {"CANCELED", "FINISHED"}


@on_shared_cluster
def test_a_killed_worker_is_named(client):
    os.kill(client.worker, signal.SIGKILL)
    assert "EngineError:worker" in client.end()
    assert client.states() <= {"CANCELED", "FAILED", "FINISHED"}


def printed(folder, words):
    """What a client prints whose job has no worker."""
    client = [sys.executable, "-W", "ignore", "-c", CLIENT, folder, *words]
    return subprocess.run(client, capture_output=True, text=True, check=False).stdout


def test_workers_that_do_not_start_end_the_step_in_time(shared_cluster, tmp_path):
    started = time.monotonic()
    program = json.dumps({"command": str(command(tmp_path, python="sleep 300;"))})
    words = ["--worker_timeout=15", *shared_cluster.arguments("PROCESS", program)]
    words += [f"--flink_master={shared_cluster.rest}", RUNNER]
    assert "WorkerError" in printed(tmp_path, words)
    assert time.monotonic() - started < 90
    assert set(shared_cluster.jobs().values()) <= {"CANCELED", "FAILED", "FINISHED"}


def test_task_managers_that_share_a_pool_are_refused(shared_cluster, tmp_path):
    words = [*shared_cluster.arguments("EXTERNAL", "localhost:50000"), RUNNER]
    words.append(f"--flink_master={shared_cluster.rest}")
    assert "WorkerError" in printed(tmp_path, words)


@on_its_own_cluster
def test_a_killed_task_manager_is_named(client):
    for each in client.flink.task_managers:
        each.kill()
    assert "EngineError:engine process" in client.end()


@on_its_own_cluster
def test_the_job_of_a_killed_job_server_is_cancelled(client):
    client.flink.job_server.kill()
    assert "EngineError:job server" in client.end()
    assert client.states() <= {"CANCELED", "FINISHED"}
