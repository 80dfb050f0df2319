"""Jobs on Flink in processes of its own: what a stopped run leaves, and what faults say."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from beam_engines.flink import Flink
from beam_engines.workers import Pool, pool
from processes import written

pytestmark = pytest.mark.slow

CLIENT = """
import pathlib, sys, time
import apache_beam as beam

class Wait(beam.DoFn):
    def __init__(self, folder):
        self._folder = folder

    def process(self, element):
        import os
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


@pytest.fixture
def workers(tmp_path):
    """A pool of workers in processes of their own."""
    folder = tmp_path / "pool"
    folder.mkdir()
    with pool(folder, {}) as started:
        yield started


class Client:
    """A process with a job whose only element never ends."""

    def __init__(self, flink: Flink, workers: Pool, folder: pathlib.Path):
        self._log = (folder / "client.log").open("w+")
        self.flink = flink
        words = [
            "--runner=stagecraft.pipeline.beam.portable.FlinkRunner",
            *flink.arguments("EXTERNAL", workers.endpoint),
            f"--flink_master={flink.rest}",
        ]
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
def client(flink_cluster, workers, tmp_path):
    client = Client(flink_cluster, workers, tmp_path)
    yield client
    client.process.kill()
    client.process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_client_leaves_no_job(client, number):
    client.process.send_signal(number)
    assert "KeyboardInterrupt" in client.end()
    assert client.states() <= {"CANCELED", "FINISHED"}


def test_a_killed_worker_is_named(client):
    os.kill(client.worker, signal.SIGKILL)
    assert "EngineError:worker" in client.end()
    assert client.states() <= {"FAILED", "FINISHED"}


def test_a_killed_task_manager_is_named(client):
    for each in client.flink.task_managers:
        each.kill()
    assert "EngineError:engine process" in client.end()


def test_the_job_of_a_killed_job_server_is_cancelled(client):
    client.flink.job_server.kill()
    assert "EngineError:job server" in client.end()
    assert client.states() <= {"CANCELED", "FINISHED"}


def test_a_pool_without_stagecraft_ends_in_time(flink_cluster, tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    started = time.monotonic()
    with pool(folder, {}, python="false") as bad:
        words = ["--worker_timeout=15", *flink_cluster.arguments("EXTERNAL", bad.endpoint)]
        words += [f"--flink_master={flink_cluster.rest}"]
        words += ["--runner=stagecraft.pipeline.beam.portable.FlinkRunner"]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CLIENT, tmp_path, *words],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "WorkerError" in done.stdout
    assert time.monotonic() - started < 90
    assert set(flink_cluster.jobs().values()) == {"CANCELED"}
