"""Messages between the supervisor and the process of a run.

The supervisor sends the specification of the run, :class:`RunSpec`. The process of the run sends
events. An event is a log record of a ``stagecraft`` logger with a flat dict attached, so that the
same code works in any program. Here, the dicts become JSON lines in a pipe. Kinds:

* ``pipeline``: ``name``, ``run_id``, ``nodes`` (in order), ``skipped`` (in a partial run)
* ``node``: ``node``, ``state`` (running, done, cached, skipped, failed, interrupted),
  ``seconds``, ``figure``, ``cause``
* ``note``: ``text``, a remark about the model before the training
* ``progress``: ``phase`` and its numbers
* ``job``: ``state`` (running, cancelling, ended, left) and ``job``, a job on a Beam engine;
  ``seconds`` that cancelling may take, ``left``, which says how to cancel what may remain
* ``end``: ``status`` (ok, failed, interrupted), ``cause``, ``report``
"""

from __future__ import annotations

import logging
import pathlib
from typing import Any

import pydantic
import pydantic.dataclasses

from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.processes.events import write

Event = dict[str, Any]

_log = logging.getLogger("stagecraft.run")
_log.setLevel(logging.INFO)


SCRATCH = "stagecraft-run-"

CREATE_PIPELINE = "stagecraft.pipeline.pipeline:create_pipeline"


def emit(kind: str, text: str, /, **fields: Any) -> None:
    """Emits an event; the log shows ``text``."""
    _log.info(text, extra={"event": {"kind": kind, **fields}})


class PipeHandler(logging.Handler):
    """Writes events, and the progress of components, to a file descriptor."""

    def __init__(self, descriptor: int):
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line if the record has an event or progress."""
        event: Event | None = getattr(record, "event", None)
        progress = getattr(record, "progress", None)
        if event is None and progress is not None:
            event = {"kind": "progress", **progress}
        if event is not None:
            write(self._descriptor, event)


def attach(descriptor: int) -> None:
    """Sends all events and progress of this process to a pipe."""
    logging.getLogger("stagecraft").addHandler(PipeHandler(descriptor))
    logging.getLogger("stagecraft.progress").setLevel(logging.INFO)


@pydantic.dataclasses.dataclass(frozen=True)
class RunSpec:
    """One run of a pipeline."""

    settings: PipelineSettings
    output: pathlib.Path
    runner: str = "local"
    """``local`` or ``beam``."""

    from_node: str | None = None
    to_node: str | None = None
    fresh: bool = False
    """Whether the run first deletes the output's checkpoints."""

    command: str = ""
    """The command line of the run, without secrets."""

    create: str = CREATE_PIPELINE
    """``module:function`` of a function ``(settings, output) -> Pipeline``."""

    def to_json(self) -> str:
        """One line, for the pipe between the processes."""
        return pydantic.TypeAdapter(RunSpec).dump_json(self).decode()

    @classmethod
    def from_json(cls, line: str) -> RunSpec:
        """The inverse of :meth:`to_json`."""
        return pydantic.TypeAdapter(cls).validate_json(line)
