"""Profiles some steps by TensorFlow's profiler (https://www.tensorflow.org/guide/profiler)."""

from __future__ import annotations

import logging

import tensorflow as tf

_log = logging.getLogger(__name__)


class Profile:
    """Profiles the steps from the first to the last, or none.

    A training that resumes after the first step profiles the remaining ones.
    """

    def __init__(self, steps: str, folder: str):
        """``steps``: ``FIRST:LAST``, counted from 1; empty: none. ``folder`` gets the profile."""
        first, _, last = steps.partition(":")
        self._first, self._last = (int(first), int(last)) if steps else (1, 0)
        self._folder = folder
        self._is_on = False

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def before(self, step: int, steps: int) -> int:
        """Starts the profiler if due; returns how many of ``steps`` the next call may take."""
        if step < self._first - 1:
            return min(steps, self._first - 1 - step)
        if step >= self._last:
            return steps
        if not self._is_on:
            tf.profiler.experimental.start(self._folder)
            self._is_on = True
        return min(steps, self._last - step)

    def after(self, step: int) -> None:
        """Stops the profiler if ``step`` was the last one to profile."""
        if step >= self._last:
            self._stop()

    def _stop(self) -> None:
        if self._is_on:
            self._is_on = False
            tf.profiler.experimental.stop()
            _log.info("Profile: tensorboard --logdir %s", self._folder)
