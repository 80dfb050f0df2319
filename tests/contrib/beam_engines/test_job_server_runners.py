"""Jobs on a job server in Python: their end, cancellation and failures."""

from __future__ import annotations

import os
import signal
import threading

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from stagecraft.contrib.beam_engines import job_server_runners, jobs
from stagecraft.contrib.beam_engines.job_server_runners import EngineError, FlinkRunner, SparkRunner


def run(service, runner=SparkRunner, **options):
    """A job with one element; its worker is this process."""
    options = PipelineOptions(job_endpoint=service.endpoint, environment_type="LOOPBACK", **options)
    with beam.Pipeline(runner=runner(), options=options) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(lambda item: item)


def job_states(events):
    return [event["state"] for event in events() if event.get("kind") == "job"]


def interrupted(service, number=signal.SIGINT):
    """Sends this process a signal as soon as a job runs."""

    def send():
        assert service.started.wait(60)
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()


def test_a_job_runs_to_its_end(job_service, events):
    run(job_service)
    assert job_service.states() == ["DONE"]
    assert job_states(events) == ["running", "ended"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_job_and_waits_for_its_end(job_service, events, number):
    job_service.hang()
    interrupted(job_service, number)
    with pytest.raises(KeyboardInterrupt):
        run(job_service)
    assert job_service.states() == ["CANCELLED"]
    assert job_states(events) == ["running", "cancelling", "ended"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_job_that_does_not_end_is_named(job_service, events, monkeypatch):
    monkeypatch.setattr(jobs, "CANCEL_SECONDS", 0.5)
    job_service.hang()
    job_service.deaf = True
    interrupted(job_service)
    with pytest.raises(KeyboardInterrupt):
        run(job_service, job_name="mine")
    [left] = [event for event in events() if event.get("state") == "left"]
    assert left["job"]["name"].startswith("mine-")
    assert left["job"]["name"] in left["left"]


def test_flink_that_nobody_can_ask_is_said(job_service, events):
    job_service.hang()
    interrupted(job_service)
    with pytest.raises(KeyboardInterrupt):
        run(job_service, FlinkRunner)
    assert "flink cancel ID" in events()[-1]["left"]


def test_a_signal_during_submission_cancels_the_job_all_the_same(job_service, events):
    """The job server has the job, but its answer is still on the way."""
    job_service.hang()

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        assert not job_service.cancelled.wait(1)

    job_service.before_answer = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(job_service)
    assert job_service.states() == ["CANCELLED"]


def test_a_job_is_not_sent_after_a_signal(job_service, monkeypatch):
    stock = jobs.Following.sending

    def late(following):
        os.kill(os.getpid(), signal.SIGINT)
        while not following._cancelled:
            pass
        stock(following)

    monkeypatch.setattr(jobs.Following, "sending", late)
    with pytest.raises(KeyboardInterrupt):
        run(job_service)
    assert job_service.states() == ["STOPPED"]


def test_jobs_of_other_threads_are_cancelled_at_the_end_of_the_process(job_service, events):
    job_service.hang()
    raised = []

    def thread():
        try:
            run(job_service)
        except RuntimeError as error:
            raised.append(error)

    runs = threading.Thread(target=thread)
    runs.start()
    assert job_service.started.wait(60)
    assert jobs.cancel_all()
    runs.join()
    assert job_service.states() == ["CANCELLED"]
    assert not jobs.cancel_all()


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("StatusRuntimeException: CANCELLED: client cancelled", "worker"),
        ("java.lang.IllegalStateException: Process died with exit code 137", "worker"),
        ("The TaskManager with id 1 is no longer reachable.", "engine process"),
        ("Insufficient number of network buffers: required 512", "network buffers"),
        ("NoResourceAvailableException: Slot request timed out", "slots"),
    ],
)
def test_a_fault_of_the_engine_is_named(job_service, said, fault):
    job_service.fail(said)
    with pytest.raises(EngineError) as raised:
        run(job_service)
    assert raised.value.fault == fault
    assert raised.value.setting == "beam.runner"
    assert raised.value.value == "spark"


def test_an_error_in_the_code_of_a_step_stays_as_it_is(job_service):
    job_service.fail("Error received: Traceback (most recent call last):\nValueError: bad")
    with pytest.raises(RuntimeError, match="ValueError: bad"):
        run(job_service)


@pytest.fixture
def lost_service(job_service):
    """A job server that ends when it has started a job."""
    job_service.hang()

    def stop():
        assert job_service.started.wait(60)
        job_service.stop()

    threading.Thread(target=stop).start()
    return job_service


def test_a_lost_job_server_is_named(lost_service, events):
    with pytest.raises(EngineError) as raised:
        run(lost_service)
    assert raised.value.fault == "job server"
    assert [event.get("state") for event in events()].count("left") == 1


def test_a_job_server_without_memory_is_named(lost_service, monkeypatch):
    monkeypatch.setattr(job_server_runners, "ran_out_of_memory", lost_service.endpoint.__eq__)
    with pytest.raises(EngineError) as raised:
        run(lost_service)
    assert raised.value.fault == "memory"
    assert "-Xmx" in raised.value.suggestion


def test_no_job_server_is_said_at_once(job_service, events):
    job_service.stop()
    with pytest.raises(EngineError) as raised:
        run(job_service, job_server_timeout=1)
    assert raised.value.fault == "job server"
    assert job_states(events) == ["running", "ended"]
