"""Google Cloud Dataflow."""

from __future__ import annotations

from stagecraft.pipeline.beam.runner import Runner


class Dataflow(Runner):
    """Google Cloud Dataflow."""

    name = "dataflow"
    description = "on Google Cloud Dataflow"
    beam_name = "stagecraft.pipeline.beam.dataflow.DataflowRunner"


DATAFLOW = Dataflow()
