"""Beam, which runs the data components: its runners, their arguments, and what they run."""

from __future__ import annotations

from stagecraft.pipeline.beam.in_process import in_process
from stagecraft.pipeline.beam.runner import RUNNERS
from stagecraft.pipeline.beam.settings import BeamSettings

__all__ = ["RUNNERS", "BeamSettings", "beam_args", "in_process"]


def beam_args(settings: BeamSettings) -> list[str]:
    """The ``beam_pipeline_args`` of a TFX pipeline."""
    added = settings.found.arguments(settings.given)
    return [*settings.args, *settings.unchecked_args, *added]
