"""The job server of a run, with a program in Python instead of Java."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from processes import gone, written

from stagecraft.contrib.beam_engines import job_server
from stagecraft.contrib.beam_engines.job_server import JobServerError
from stagecraft.contrib.beam_engines.job_server_runners import FlinkRunner

pytestmark = pytest.mark.slow

FAKE = pathlib.Path(__file__).with_name("fake_java.py")

SAID = "started"

CLIENT = """
import os, signal, sys
from apache_beam.options.pipeline_options import PipelineOptions
from stagecraft.contrib.beam_engines.job_server_runners import FlinkRunner

server = FlinkRunner()._own_server(PipelineOptions(sys.argv[3:]))
server.start()
open(sys.argv[1], "w").write(str(server._folder))
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def arguments(java, master="[local]"):
    return [
        f"--flink_master={master}",
        f"--flink_job_server_jar={__file__}",
        f"--job_server_java_launcher={java}",
    ]


def options(java, master="[local]"):
    return PipelineOptions(arguments(java, master))


@pytest.fixture
def java(tmp_path):
    """A program in the place of ``java``; servers end after the test."""
    program = tmp_path / "java"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore {FAKE} {tmp_path} "$@"\n')
    program.chmod(0o755)
    yield program
    job_server.stop_all()


def pid(java):
    """Of the newest job server."""
    return int(written(java.with_name("pid")))


def test_one_server_serves_all_jobs_and_ends_with_its_files(java, caplog):
    caplog.set_level("INFO")
    server = FlinkRunner()._own_server(options(java))
    server.start()
    assert FlinkRunner()._own_server(options(java)) is server
    assert FlinkRunner()._own_server(options(java, "host:8081")) is not server
    started = pid(java)
    job_server.stop_all()
    assert gone(started)
    assert not server._folder.exists()
    assert SAID in caplog.text


def test_the_next_job_gets_a_new_server_after_the_death_of_the_first(java):
    server = FlinkRunner()._own_server(options(java))
    server.start()
    os.kill(pid(java), signal.SIGKILL)
    server._process.wait(20)
    again = FlinkRunner()._own_server(options(java))
    again.start()
    assert again is not server
    assert again.is_running()


@pytest.mark.parametrize(("code", "memory"), [(3, True), (1, False)])
def test_a_server_without_memory_is_told_from_others(java, code, memory):
    (java.with_name("code")).write_text(str(code))
    server = FlinkRunner()._own_server(options(java))
    assert any("ExitOnOutOfMemoryError" in word for word in server._command)
    server.start()
    os.kill(pid(java), signal.SIGTERM)
    assert job_server.ran_out_of_memory(server.endpoint) == memory
    assert not job_server.ran_out_of_memory("localhost:1")


@pytest.mark.parametrize("end", ["return", "kill"])
def test_it_ends_with_its_client(java, tmp_path, end):
    words = [sys.executable, "-W", "ignore", "-c", CLIENT, tmp_path / "at", end, *arguments(java)]
    subprocess.run(words, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    folder = pathlib.Path(written(tmp_path / "at"))
    assert gone(int((tmp_path / "pid").read_text()))
    assert folder.exists() == (end == "kill")  # in TMPDIR, which the supervisor removes


def test_an_embedded_flink_has_a_rest_api_on_this_machine_only(java):
    server = FlinkRunner()._own_server(options(java))
    conf = (server._folder / "flink-conf.yaml").read_text()
    assert f"rest.port: {server.rest.rpartition(':')[2]}\n" in conf
    assert "rest.bind-address: 127.0.0.1\n" in conf
    assert server._command[-1] == f"--flink-conf-dir={server._folder}"


def test_a_server_that_ends_says_why(java):
    with pytest.raises(JobServerError) as raised:
        FlinkRunner()._own_server(options(java, "[auto]")).start()
    assert raised.value.setting == "beam.args"


def test_a_missing_java_is_said(tmp_path):
    with pytest.raises(JobServerError) as raised:
        FlinkRunner()._own_server(options(tmp_path / "none")).start()
    assert raised.value.suggestion.startswith("--job_endpoint=")
    job_server.stop_all()
