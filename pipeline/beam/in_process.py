"""Beam's runner in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
"""Beam's Python runner, by its full name, which means the same in all versions. In newer versions,
``DirectRunner`` first downloads the binary of another runner (Prism), and falls back to this one
without a message."""


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Makes a bare ``beam.Pipeline()``, as in TFX's executors, run in this process in the block.

    Its state cache would visit all objects of all modules to compute its size, and save nothing.
    """
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    runner, cache = StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB
    StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB = IN_PROCESS, 0
    try:
        yield
    finally:
        StandardOptions.DEFAULT_RUNNER, worker_handlers.STATE_CACHE_SIZE_MB = runner, cache
