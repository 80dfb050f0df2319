"""Dataflow's client with a job that only pretends."""

from __future__ import annotations

import os
import signal
import threading

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

from stagecraft.contrib.beam_engines.dataflow import DataflowRunner, dataflow_runner

ARGUMENTS = ["--project=my-project", "--region=europe-west1", "--temp_location=gs://bucket/tmp"]


class Result:
    """A job that runs until it is cancelled."""

    def __init__(self):
        self.cancelled = threading.Event()

    def wait_until_finish(self, duration=None):
        os.kill(os.getpid(), signal.SIGTERM)
        assert self.cancelled.wait(60)

    def cancel(self):
        self.cancelled.set()


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Beam asks Google about the bucket, and waits for an answer."""
    name = "_warn_if_soft_delete_policy_enabled"
    monkeypatch.setattr(GoogleCloudOptions, name, lambda *given: None, raising=False)


def test_a_signal_cancels_the_job(monkeypatch):
    result, names = Result(), []

    def run_pipeline(self, pipeline, options, pipeline_proto=None):
        names.append(options.view_as(GoogleCloudOptions).job_name)
        return result

    monkeypatch.setattr(dataflow_runner.DataflowRunner, "run_pipeline", run_pipeline)
    pipeline = beam.Pipeline(runner=DataflowRunner(), options=PipelineOptions(ARGUMENTS))
    _ = pipeline | beam.Create([1])
    with pytest.raises(KeyboardInterrupt):
        pipeline.run()
    assert result.cancelled.is_set()
    assert names[0].startswith("stagecraft-")


def test_beam_checks_its_options_as_those_of_dataflow():
    options = PipelineOptions(["--region=europe-west1"])
    errors = PipelineOptionsValidator(options, DataflowRunner()).validate()
    assert any("project" in error for error in errors)
