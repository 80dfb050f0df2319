"""Beam, which runs the data components: its runners, their arguments, and what they run."""

from __future__ import annotations

import sys

from stagecraft.pipeline.beam.in_process import for_workers, in_process, rooted
from stagecraft.pipeline.beam.overhead import reduced as reduced_overhead
from stagecraft.pipeline.beam.runner import RUNNERS
from stagecraft.pipeline.beam.settings import BeamSettings

__all__ = [
    "RUNNERS",
    "BeamSettings",
    "beam_args",
    "cancel_jobs",
    "in_process",
    "reduced_overhead",
    "rooted",
    "shut_down",
]

_ENGINES = "stagecraft.contrib.beam_engines"


def beam_args(settings: BeamSettings) -> list[str]:
    """The ``beam_pipeline_args`` of a TFX pipeline."""
    added = settings.found.arguments(settings.given)
    return for_workers([*settings.args, *settings.unchecked_args, *added])


def cancel_jobs() -> bool:
    """Cancels all jobs of this process and waits for their end; returns whether there were any."""
    jobs = sys.modules.get(f"{_ENGINES}.jobs")  # whoever started one has imported it
    return jobs is not None and jobs.cancel_all()


def shut_down() -> None:
    """Cancels the jobs of this process and ends its job servers; for ends that skip ``atexit``."""
    cancel_jobs()
    if servers := sys.modules.get(f"{_ENGINES}.job_server"):
        servers.stop_all()
