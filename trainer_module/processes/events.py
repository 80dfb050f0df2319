"""What a process of a training tells whoever started it: JSON objects in a pipe, a line each.

    {"event": "beat"}                           every second, as long as it is alive
    {"event": "started"}                        it and its peers have found each other
    {"event": "phase", "phase": "train"}        or evaluate, save, done, export
    {"event": "progress", "phase": "train", …}  figures of the steps since the last
    {"event": "progress", "phase": "resume", …} the checkpoint that it goes on from
    {"event": "failed", "message": …}           why it is about to end
    {"event": "done"}                           it has done its part

Events are log records with a dict attached, so that code that tells something need not know
whether anybody listens. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from typing import Any

Event = dict[str, Any]

BEAT_SECONDS = 1.0

_log = logging.getLogger("stagecraft.training")


def tell(event: str, text: str = "", **fields: Any) -> None:
    """Tells of an event; ``text`` is for whoever reads the log."""
    _log.info(text or event, extra={"training": {"event": event, **fields}})


class _Pipe(logging.Handler):
    def __init__(self, descriptor: int):
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        event: Event | None = getattr(record, "training", None)
        progress = getattr(record, "progress", None)
        if event is None and progress is not None:
            event = {"event": "progress", **progress}
        if event is not None:
            write(self._descriptor, event)


def write(descriptor: int, event: Event) -> None:
    """Writes a line; it is short enough that lines of several threads do not mix."""
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(descriptor, json.dumps(event, default=str).encode() + b"\n")


def attach(descriptor: int) -> None:
    """Sends the events and the progress of this process to a pipe, and a beat every second."""
    logger = logging.getLogger("stagecraft")
    logger.addHandler(_Pipe(descriptor))
    logger.setLevel(logging.INFO)

    def beat() -> None:
        while True:
            write(descriptor, {"event": "beat"})
            never.wait(BEAT_SECONDS)

    never = threading.Event()
    threading.Thread(target=beat, name="beat", daemon=True).start()
