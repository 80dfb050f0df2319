"""Apache Spark."""

from __future__ import annotations

from types import MappingProxyType

from stagecraft.pipeline.beam.runner import PORTABLE_OPTIONS, JobRunner

_INTEGERS = (
    *("bundle_size", "batch_interval_millis", "min_read_time_millis", "max_records_per_batch"),
    "checkpoint_duration_millis",
)
_FLAGS = ("enable_spark_metric_sinks", "cache_disabled", "uses_provided_spark_context")


class Spark(JobRunner):
    """A cluster of Apache Spark."""

    name = "spark"
    description = "on a cluster of Apache Spark"
    beam_name = "stagecraft.contrib.beam_engines.job_server_runners.SparkRunner"
    option_classes = (*JobRunner.option_classes, "SparkRunnerOptions")
    options = MappingProxyType(
        {
            **PORTABLE_OPTIONS,
            **dict.fromkeys(_INTEGERS, int),
            **dict.fromkeys(_FLAGS, bool),
            **dict.fromkeys(("storage_level", "checkpoint_dir"), str),
            "read_time_percentage": float,
        }
    )
    """``SparkPipelineOptions`` of Beam's runner in Java (runners/spark), in Python's spelling."""

    master, jar = "spark_master_url", "spark_job_server_jar"
    further_servers = ("spark_rest_url",)
    local_master = r"local(\[.+\])?"
    example = "--spark_master_url=spark://HOST:7077"


SPARK = Spark()
