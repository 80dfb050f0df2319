"""Which Beam runner runs the data steps, and the guarantee that it is the one asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from stagecraft.pipeline.settings import BeamSettings

IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
"""Beam's Python runner, by its full name. It is what ``DirectRunner`` meant for years; newer
Beam's ``DirectRunner`` first downloads another runner's binary (Prism) and falls back to this
one silently. The full name means the same on all versions."""

_RUNNERS = {
    "direct": (
        f"--runner={IN_PROCESS}",
        # Nothing is packaged for this process. Without this (unused) name, TFX builds a source
        # distribution of itself for every component: 1.3 s each.
        "--sdk_container_image=unused",
    ),
    "flink": ("--runner=FlinkRunner",),
    "spark": ("--runner=SparkRunner",),
    "dataflow": ("--runner=DataflowRunner",),
}


def beam_args(settings: BeamSettings) -> list[str]:
    """The ``beam_pipeline_args`` of a TFX pipeline."""
    return [*settings.args, *_RUNNERS[settings.runner]]


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Makes a bare ``beam.Pipeline()`` run in this process, and that run without a state cache.

    TFX's BeamDagRunner makes such a pipeline, and so may anybody's executor. The cache spares
    workers a request over the network; within a process it saves nothing, and to know its size
    it goes through all objects of all modules. Beam itself has it on for its own tests only.
    """
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    runner, cache = StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB
    StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB = IN_PROCESS, 0
    try:
        yield
    finally:
        StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB = runner, cache
