"""Beam's job server in Java: one process for all jobs of a run, which ends with this process.

The server's ports are open on all interfaces of the machine: ``--job-host`` changes only the
address that it announces.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import logging
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping

import grpc
from apache_beam.portability.api import beam_job_api_pb2_grpc
from apache_beam.runners.portability import job_server
from apache_beam.utils.subprocess_server import pick_port

from stagecraft.common.errors import UserError, cleaned

_START_SECONDS = 60.0
_END_SECONDS = 5.0
"""Connections close so much earlier than the process ends, at most."""

_OUT_OF_MEMORY = 3
"""Java's exit code for ``ExitOnOutOfMemoryError``."""

FLINK_CONFIGURATION = {
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    # Without it, Flink takes 512 network buffers for each blocking exchange of a batch job.
    "taskmanager.network.sort-shuffle.min-parallelism": 100_000,
    "taskmanager.memory.network.min": "192m",
    "taskmanager.memory.network.max": "192m",
}
"""Of a Flink in the process of the job server; it also has a port for its REST API."""

_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel"
"""Its default, ``info``, logs several lines for each task of a job."""

_QUIET = ("org.apache.flink.runtime.webmonitor", "org.apache.beam.sdk.fn.data")
"""Loggers that warn about what is right: no log files for Flink's page, workers that end."""

# The shell reads its standard input to the end, which is the end of this process, however it ends.
_LIFELINE = (
    'exec 3<&0; "$@" </dev/null & java=$!; (cat <&3 >/dev/null; kill -9 $java) >/dev/null 2>&1 & '
    "lifeline=$!; wait $java; code=$?; kill $lifeline; exit $code"
)

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_servers: dict[str, JavaServer] = {}


class JobServerError(UserError):
    """A job server that does not start."""


def shared(
    java: job_server.JavaJarJobServer, key: str, flink: Mapping[str, object] | None = None
) -> JavaServer:
    """The server of this process for a key: the engine, its address and the program.

    Args:
        flink: configuration of a Flink in the process of the server.
    """
    with _lock:
        found = _servers.get(key)
        if found is None or not found.is_running():
            if found is not None:
                found.stop()
            _servers[key] = found = JavaServer(java, flink)
        return found


def ran_out_of_memory(endpoint: str) -> bool:
    """Whether the server of this process at an address has ended for lack of memory."""
    with _lock:
        found = [server for server in _servers.values() if server.endpoint == endpoint]
    return any(server.exit_code() == _OUT_OF_MEMORY for server in found)


def stop_all() -> None:
    """Ends the job servers of this process and removes their files."""
    with _lock:
        for server in _servers.values():
            server.stop()
        _servers.clear()


atexit.register(stop_all)


class JavaServer(job_server.JobServer):
    """A process with a job server."""

    def __init__(
        self, java: job_server.JavaJarJobServer, flink: Mapping[str, object] | None = None
    ):
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-job-server-"))
        java._local_temp_root = str(self._folder)
        java._jvm_properties = [
            "-XX:+ExitOnOutOfMemoryError",  # otherwise, a job may wait for ever for a dead thread
            f"{_LOG_LEVEL}=warn",
            *(f"-Dorg.slf4j.simpleLogger.log.{name}=error" for name in _QUIET),
            f"-Djava.io.tmpdir={self._folder}",
            *java._jvm_properties,
        ]
        java._expansion_port = -1  # none: it is for pipelines of several languages
        command, self.endpoint = java.subprocess_cmd_and_endpoint()
        self._command = [str(word) for word in command]
        self.rest = ""
        """Address of the REST API of a Flink in this process."""
        if flink is not None:
            [port] = pick_port(None)
            self.rest = f"http://127.0.0.1:{port}"
            values = {**flink, "rest.port": port}
            text = "".join(f"{name}: {value}\n" for name, value in values.items())
            (self._folder / "flink-conf.yaml").write_text(text)
            self._command.append(f"--flink-conf-dir={self._folder}")
        self._process: subprocess.Popen[bytes] | None = None
        self._last: collections.deque[str] = collections.deque(maxlen=5)
        self._starting = threading.Lock()

    def start(self) -> beam_job_api_pb2_grpc.JobServiceStub:
        """Starts the process, once; returns a client.

        Raises:
            JobServerError: it ends at once, or does not answer.
        """
        with self._starting:
            if self._process is None:
                self._process = self._started()
            channel = grpc.insecure_channel(
                self.endpoint,
                [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
            )
            self._wait_until_ready(channel)
        return beam_job_api_pb2_grpc.JobServiceStub(channel)

    def is_running(self) -> bool:
        """Whether the process runs, or has yet to start."""
        return self._process is None or self._process.poll() is None

    def exit_code(self) -> int | None:
        """The exit code of a process that has ended, or is about to; otherwise None."""
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_SECONDS)
        return None

    def stop(self) -> None:
        """Ends the process and removes its files."""
        if self._process is not None:
            assert self._process.stdin
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _started(self) -> subprocess.Popen[bytes]:
        _log.info("starting a job server: %s", " ".join(self._command))
        process = subprocess.Popen(
            ["sh", "-c", _LIFELINE, "job-server", *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        threading.Thread(target=self._copy_output, args=[process], daemon=True).start()
        return process

    def _copy_output(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        for line in process.stdout:
            text = line.decode(errors="replace").rstrip()
            self._last.append(text)
            _log.info("%s", text)

    def _wait_until_ready(self, channel: grpc.Channel) -> None:
        ready = grpc.channel_ready_future(channel)
        deadline = time.monotonic() + _START_SECONDS
        while self.is_running() and time.monotonic() < deadline:
            with contextlib.suppress(grpc.FutureTimeoutError):
                ready.result(timeout=0.2)
                return
        why = "does not answer" if self.is_running() else "ended"
        last = cleaned(f": {' / '.join(self._last)}") if self._last else ""
        raise JobServerError(
            f"beam.args: the job server {why} {last}; it needs Java 11 or newer, and a JAR file of "
            "Beam's job server for this version of Beam",
            setting="beam.args",
            suggestion="--job_endpoint=HOST:PORT of a job server that runs",
        )
