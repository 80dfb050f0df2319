"""Beam's runner for Google Cloud Dataflow, which runs a job to its end or cancels it."""

from __future__ import annotations

import uuid
from typing import Any

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.dataflow import dataflow_runner

from stagecraft.contrib.beam_engines.jobs import Following, Job


class DataflowRunner(dataflow_runner.DataflowRunner):
    """Runs jobs on Dataflow. Beam's checks of options need this name."""

    def run_pipeline(
        self, pipeline: Any, options: PipelineOptions, *more: Any, **named: Any
    ) -> Any:
        """Runs the job.

        Raises:
            KeyboardInterrupt: after SIGINT or SIGTERM; the job is cancelled.
        """
        cloud = options.view_as(GoogleCloudOptions)
        cloud.job_name = f"{cloud.job_name or 'stagecraft'}-{uuid.uuid4().hex[:8]}"
        following = Following(Job(cloud.job_name, "Dataflow"))
        submit = super().run_pipeline

        def send() -> Any:
            following.sending()
            return submit(pipeline, options, *more)

        return following.run(send)
