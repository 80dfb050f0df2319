"""The probe on a job server in Python, whose worker is a process of its own."""

from __future__ import annotations

import json
import sys
import threading

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from stagecraft.contrib.beam_engines import probe
from stagecraft.contrib.beam_engines.flink_rest import FlinkRest
from stagecraft.contrib.beam_engines.job_server_runners import SparkRunner
from stagecraft.contrib.beam_engines.probe import WorkerError
from stagecraft.pipeline.beam import rooted

RUNNER = "--runner=stagecraft.contrib.beam_engines.job_server_runners.SparkRunner"


@pytest.fixture
def arguments(job_service):
    """Pipeline arguments for a worker in this process."""
    return [RUNNER, f"--job_endpoint={job_service.endpoint}", "--environment_type=LOOPBACK"]


def test_a_good_worker_uses_the_root(arguments, tmp_path):
    found = probe.check_arguments(arguments, str(tmp_path))
    assert found["python"] == f"3.{sys.version_info.minor}"
    assert {"apache-beam", "tfx", "tensorflow", "stagecraft"} <= found.keys()
    assert list(tmp_path.iterdir()) == []


def test_other_versions_are_refused_by_name(arguments, monkeypatch, job_service):
    stock = probe.versions()

    def versions():
        """The worker runs in another thread."""
        main = threading.current_thread() is threading.main_thread()
        return {**stock, "tfx": "0.1"} if main else {**stock, "tfx": "0.2"}

    monkeypatch.setattr(probe, "versions", versions)
    with pytest.raises(WorkerError) as raised:
        probe.check_arguments(arguments, "")
    assert raised.value.setting == "beam.args"
    assert raised.value.value == "LOOPBACK"
    assert raised.value.lacks == {"tfx": "0.2"}
    assert job_service.states() == ["FAILED"]


def test_a_root_that_the_worker_cannot_use_is_refused(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "_write", lambda path, text: None)
    with pytest.raises(WorkerError) as raised:
        probe.check_arguments(arguments, str(tmp_path))
    assert raised.value.lacks.keys() == {"root"}
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_not_shared_is_refused(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(probe._Answer, "process", lambda self, element: ())
    with pytest.raises(WorkerError) as raised:
        probe.check_arguments(arguments, str(tmp_path))
    assert raised.value.setting == "--output"
    assert raised.value.value == str(tmp_path)


def test_a_worker_without_stagecraft_is_refused(arguments, job_service):
    job_service.fail("Traceback (most recent call last): No module named 'stagecraft'")
    with pytest.raises(WorkerError) as raised:
        probe.check_arguments(arguments, "")
    assert raised.value.lacks == {"stagecraft": "none"}


def test_a_worker_that_does_not_start_in_time_ends_the_job(job_service):
    job_service.hang()
    secret = {"command": "/boot", "env": {"KEY": "secret"}}
    arguments = [
        *(RUNNER, f"--job_endpoint={job_service.endpoint}", "--worker_timeout=1"),
        *("--environment_type=PROCESS", f"--environment_config={json.dumps(secret)}"),
    ]
    with pytest.raises(WorkerError) as raised:
        probe.check_arguments(arguments, "")
    assert raised.value.value == "PROCESS /boot"
    assert raised.value.suggestion == "--worker_timeout=2"
    assert job_service.states() == ["CANCELLED"]


def test_the_first_job_of_a_process_is_preceded_by_a_probe(job_service, monkeypatch):
    roots = []
    monkeypatch.setattr(probe, "check", lambda runner, options, root: roots.append(root))
    elsewhere = PipelineOptions(
        job_endpoint=job_service.endpoint, environment_type="EXTERNAL", environment_config="h:1"
    )
    here = PipelineOptions(job_endpoint=job_service.endpoint, environment_type="LOOPBACK")
    with rooted("/root"):
        for options in (elsewhere, elsewhere, here):
            probe.check_once(SparkRunner, options)
    assert roots == ["/root"]


def test_an_environment_is_named_without_secrets():
    options = ["environment_type=DOCKER", "environment_option=docker_container_image=image:1"]
    assert probe.described(PipelineOptions([f"--{each}" for each in options])) == "DOCKER image:1"


@pytest.mark.parametrize(
    ("pool", "hosts", "refused"),
    [
        ("localhost:50000", ["10.0.0.1", "10.0.0.2"], False),
        ("localhost:50000", ["10.0.0.1", "10.0.0.1"], True),
        ("workers:50000", ["10.0.0.1", "10.0.0.2"], True),
        ("workers:50000", ["10.0.0.1"], False),
        ("workers:50000", [], False),
    ],
)
def test_task_managers_that_share_a_pool_are_refused(pool, hosts, refused, monkeypatch):
    monkeypatch.setattr(FlinkRest, "hosts", lambda flink: hosts)
    words = [f"--environment_config={pool}", "--flink_master=flink:8081"]
    options = PipelineOptions(["--environment_type=EXTERNAL", *words])
    environment = probe.described(options)
    if not refused:
        probe._check_pool(options, environment)
        return
    with pytest.raises(WorkerError) as raised:
        probe._check_pool(options, environment)
    assert raised.value.setting == "beam.args"
    assert raised.value.value == f"EXTERNAL {pool}"
