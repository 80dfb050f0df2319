"""``stagecraft doctor --beam``: what it finds out about an engine, and what it advises."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import pathlib
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from listeners import listening

from stagecraft.common.errors import UserError
from stagecraft.contrib.beam_engines import probe
from stagecraft.pipeline.checks import beam_engine
from stagecraft.pipeline.checks.machine import Check
from stagecraft.pipeline.settings import BeamSettings


@contextlib.contextmanager
def flink(overview: dict[str, Any] | None) -> Iterator[str]:
    """``HOST:PORT`` of a REST API that gives this answer, or 404."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if overview is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(overview).encode())

        def log_message(self, *args: Any) -> None:
            """Nothing on stderr."""

    with listening(Answers) as server:
        yield server.address


@pytest.fixture
def job_server(tmp_path: pathlib.Path) -> Iterator[str]:
    """``HOST:PORT`` of Beam's job server in Python."""
    from apache_beam.runners.portability import local_job_service

    service = local_job_service.LocalJobServicer(str(tmp_path / "staged"))
    port = service.start_grpc_server(0)
    yield f"localhost:{port}"
    service.stop()


def settings(*args: str, runner: str = "flink") -> BeamSettings:
    return BeamSettings(runner=runner, args=args)


def found(given: BeamSettings, root: str = "minio://bucket/root") -> dict[str, Check]:
    return {check.name: check for check in beam_engine.all_checks(given, root)}


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], dict[str, str]]], list[Any]]:
    """Puts a function in the place of the probe; returns the list of what the probe was given."""

    def put(answer: Callable[[], dict[str, str]]) -> list[Any]:
        given: list[Any] = []

        def check(arguments: list[str], root: str) -> dict[str, str]:
            given.extend((arguments, root))
            return answer()

        monkeypatch.setattr(probe, "check_arguments", check)
        return given

    return put


WORKERS = ("--environment_type=EXTERNAL", "--environment_config=localhost:50000")


def test_an_engine_that_has_everything(job_server: str, probed: Any) -> None:
    given = probed(lambda: {"python": "3.10", "apache-beam": "2.59.0"})
    overview = {"flink-version": "1.16.0", "slots-available": 3, "slots-total": 4}
    with flink(overview) as master:
        args = (f"--job_endpoint={job_server}", f"--flink_master={master}", *WORKERS)
        checks = found(settings(*args))
    assert [*checks] == ["runner", "job server", "flink", "worker"]
    assert {check.verdict for check in checks.values()} == {"ok"}
    assert checks["flink"].found.endswith("Flink 1.16.0, 3 of 4 slots free")
    assert "apache-beam 2.59.0" in checks["worker"].found
    arguments, root = given
    assert root == "minio://bucket/root"
    assert any(each.startswith("--beam_plugin=") for each in arguments)
    [timeout] = [each for each in arguments if each.startswith("--worker_timeout=")]
    assert 20 < float(timeout.partition("=")[2]) <= 50


def test_a_job_server_that_does_not_answer(probed: Any) -> None:
    given = probed(dict)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        port = closed.getsockname()[1]
        checks = found(settings(f"--job_endpoint=localhost:{port}", *WORKERS))
    assert [*checks] == ["runner", "job server"] and not given
    assert checks["job server"].verdict == "missing"
    assert "no answer" in checks["job server"].found
    assert "--job_endpoint" in checks["job server"].advice


def test_a_server_that_is_no_job_server() -> None:
    with flink({}) as other:
        checks = found(settings(f"--job_endpoint={other}", *WORKERS))
    assert [*checks] == ["runner", "job server"]
    assert checks["job server"].verdict == "missing"
    assert "job API" in checks["job server"].found


def test_a_server_without_http_is_no_flink(job_server: str, probed: Any) -> None:
    probed(dict)
    checks = found(
        settings(f"--job_endpoint={job_server}", f"--flink_master={job_server}", *WORKERS)
    )
    assert checks["flink"].verdict == "missing" and "--flink_master" in checks["flink"].advice


@pytest.mark.parametrize("overview", [None, {}])
def test_a_server_that_is_no_flink(
    job_server: str, overview: dict[str, Any] | None, probed: Any
) -> None:
    probed(dict)
    with flink(overview) as master:
        args = (f"--job_endpoint={job_server}", f"--flink_master={master}", *WORKERS)
        checks = found(settings(*args))
    assert [*checks] == ["runner", "job server", "flink"]
    assert checks["flink"].verdict == "missing" and "--flink_master" in checks["flink"].advice


def test_a_worker_that_cannot_work(job_server: str, probed: Any) -> None:
    given = settings(f"--job_endpoint={job_server}", *WORKERS)

    def lacks_stagecraft() -> dict[str, str]:
        logging.critical("A trace of the engine")
        raise UserError("workers lack the Python package stagecraft", setting="beam.args")

    probed(lacks_stagecraft)
    worker = found(given)["worker"]
    assert (worker.verdict, worker.advice) == (
        "missing",
        "workers lack the Python package stagecraft",
    )

    def fails() -> dict[str, str]:
        raise RuntimeError("Traceback\nValueError: cause\n")

    probed(fails)
    assert found(given)["worker"].advice == "RuntimeError: ValueError: cause"


def test_logs_come_back(capfd: pytest.CaptureFixture[str], job_server: str, probed: Any) -> None:
    def log() -> dict[str, str]:
        logging.getLogger("other").error("not shown")
        return {}

    probed(log)
    found(settings(f"--job_endpoint={job_server}", *WORKERS))
    logging.getLogger("other").error("shown")
    assert "not shown" not in capfd.readouterr().err


def test_other_runners() -> None:
    [direct] = found(settings(runner="direct")).values()
    assert direct.verdict == "ok"
    dataflow = settings(
        *("--project=p", "--region=r", "--temp_location=gs://b/t", "--sdk_container_image=i"),
        runner="dataflow",
    )
    [remote] = found(dataflow).values()
    assert remote.verdict == "note"


@pytest.mark.slow
def test_a_worker_elsewhere_reads_and_writes_the_root(
    job_server: str, tmp_path: pathlib.Path
) -> None:
    """A process that the job server starts."""
    started = time.monotonic()
    args = (
        f"--job_endpoint={job_server}",
        "--environment_type=beam:env:harness_subprocess_python:v1",
        f"--environment_config={sys.executable} -m apache_beam.runners.worker.sdk_worker_main",
    )
    root = tmp_path / "root"
    root.mkdir()
    checks = found(settings(*args), str(root))
    assert checks["worker"].verdict == "ok", checks["worker"]
    assert str(root) in checks["worker"].found and not list(root.iterdir())
    assert time.monotonic() - started < 60
