"""Apache Flink."""

from __future__ import annotations

from stagecraft.pipeline.beam.runner import Runner


class Flink(Runner):
    """A cluster of Apache Flink."""

    name = "flink"
    description = "on a cluster of Apache Flink"
    beam_name = "stagecraft.pipeline.beam.portable.FlinkRunner"


FLINK = Flink()
