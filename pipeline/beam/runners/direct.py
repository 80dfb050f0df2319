"""Beam's runner in this process."""

from __future__ import annotations

from stagecraft.pipeline.beam.in_process import IN_PROCESS
from stagecraft.pipeline.beam.runner import Runner


class Direct(Runner):
    """Beam's Python runner, in the process of the pipeline."""

    name = "direct"
    description = "in the process of the pipeline"
    beam_name = IN_PROCESS
    option_classes = ("DirectOptions",)


DIRECT = Direct()
