"""Logs the progress of long work, about once a second."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with the amount done and the total."""

_PROGRESS = logging.getLogger("stagecraft.progress")
_SECONDS = 1.0


class LoggedProgress:
    """A :data:`Progress` that logs one phase."""

    def __init__(self, phase: str, unit: str) -> None:
        """``unit`` is what is counted: ``bytes`` (shown as MB) or a noun in the plural."""
        self._phase, self._unit = phase, unit
        self._next, self._last = 0.0, -1

    def __call__(self, done: int, total: int) -> None:
        """Reports at most once a second, and always at the end."""
        now = time.monotonic()
        if now < self._next and (done < total or self._last == total):
            return
        self._next, self._last = now + _SECONDS, done
        counted = f"{done:,} of {total:,} {self._unit}"
        if self._unit == "bytes":
            counted = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
        _PROGRESS.info(
            f"{self._phase}: {counted}",
            extra={"progress": {"phase": self._phase, "done": done, "total": total}},
        )
