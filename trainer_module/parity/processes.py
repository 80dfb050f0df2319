"""Runs the parity processes of one topology on this host. Imports no TensorFlow."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Sequence

from stagecraft.trainer_module.parallel.roles import Role
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.process_group import ProcessGroup
from stagecraft.trainer_module.processes.worker_process import WorkerProcess

_WORKER: tuple[str, ...] = ("-m", "stagecraft.trainer_module.parity.worker")


class ProcessError(Exception):
    """A process died, hung, or reported an error; no process of its topology is running."""


def run(
    tasks: Sequence[tuple[Role, str]],
    log: pathlib.Path,
    *,
    start_seconds: float,
    seconds: float,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> None:
    """Runs the processes of a topology to their end.

    Args:
        tasks: each role, and the file of its :class:`~.task.Task`.
        log: receives all that the processes print.
        start_seconds: timeout until all processes are connected.
        on_phase: called with each phase of the first process.

    Raises:
        ProcessError: the first cause.
    """

    def on_event(event: Event) -> None:
        if event["event"] == "phase":
            on_phase(event["phase"])

    started = time.monotonic()
    with (
        open(log, "a", buffering=1) as output,
        ProcessGroup(lambda process, line: print(line, file=output), on_event) as group,
    ):
        for role, task in tasks:
            group.add(WorkerProcess(role, _WORKER, [task], {}))
        while pending := group.unfinished:
            starting = [process for process in pending if not process.started]
            limit = start_seconds if starting else seconds
            remaining = started + limit - time.monotonic()
            if remaining < 0:
                names = ", ".join(sorted(process.role.name for process in starting or pending))
                problem = "not ready" if starting else "not done"
                setting = "" if starting else " (parity.timeout_seconds)"
                last_words = (starting or pending)[0].last_words()
                raise ProcessError(f"{names}: {problem} after {limit:.0f} s{setting}{last_words}")
            group.wait(min(remaining, 0.5))
            for process in group.pop_failed():
                raise ProcessError(process.cause())
