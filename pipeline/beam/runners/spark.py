"""Apache Spark."""

from __future__ import annotations

from stagecraft.pipeline.beam.runner import Runner


class Spark(Runner):
    """A cluster of Apache Spark."""

    name = "spark"
    description = "on a cluster of Apache Spark"
    beam_name = "stagecraft.pipeline.beam.portable.SparkRunner"


SPARK = Spark()
