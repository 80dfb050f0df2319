"""Beam, which runs the data components: its runners, their arguments, and what they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagecraft.pipeline.beam.in_process import for_workers, in_process
from stagecraft.pipeline.beam.runner import RUNNERS

if TYPE_CHECKING:
    from stagecraft.pipeline.settings import BeamSettings

__all__ = ["RUNNERS", "beam_args", "in_process"]


def beam_args(settings: BeamSettings) -> list[str]:
    """The ``beam_pipeline_args`` of a TFX pipeline."""
    added = RUNNERS.get(settings.runner).arguments(settings.args)
    return for_workers([*settings.args, *added])
