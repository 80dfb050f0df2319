"""Events that a training's process sends to its supervisor: JSON lines in a pipe.

    {"event": "beat"}                           a heartbeat, every second
    {"event": "started"}                        the process and its peers are connected
    {"event": "phase", "phase": "train"}        or evaluate, save, done, export
    {"event": "progress", "phase": "train", …}  metrics of the steps since the last event
    {"event": "progress", "phase": "resume", …} the checkpoint that training resumes from
    {"event": "progress", "phase": "precision", …} the choice of parallel.precision: auto
                                                progress has "text" and "level" of its log record
    {"event": "failed", "message": …}           why the process is about to end
    {"event": "done"}                           its work is done

Events are log records with a dict attached: code that emits them need not know whether a
supervisor listens. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from typing import Any

Event = dict[str, Any]

BEAT_SECONDS = 1.0

_log = logging.getLogger("stagecraft.training")


def emit(event: str, text: str = "", **fields: Any) -> None:
    """Emits an event; ``text`` is its line in the log."""
    _log.info(text or event, extra={"training": {"event": event, **fields}})


class _Pipe(logging.Handler):
    def __init__(self, descriptor: int):
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        event: Event | None = getattr(record, "training", None)
        progress = getattr(record, "progress", None)
        if event is None and progress is not None:
            said = {"text": record.getMessage(), "level": record.levelno}
            event = {"event": "progress", **said, **progress}
        if event is not None:
            write(self._descriptor, event)


def write(descriptor: int, event: Event) -> None:
    """Writes a line; a pipe does not mix short lines of several threads."""
    line = json.dumps(event, default=str).encode() + b"\n"
    with contextlib.suppress(OSError):  # the supervisor is gone
        while line:
            line = line[os.write(descriptor, line) :]


def attach(descriptor: int) -> None:
    """Sends this process's events and progress to a pipe, and a heartbeat every second."""
    logger = logging.getLogger("stagecraft")
    logger.addHandler(_Pipe(descriptor))
    logger.setLevel(logging.INFO)

    def beat() -> None:
        while True:
            write(descriptor, {"event": "beat"})
            time.sleep(BEAT_SECONDS)

    threading.Thread(target=beat, name="beat", daemon=True).start()
