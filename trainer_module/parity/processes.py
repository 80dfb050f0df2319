"""Starts the processes of one topology on this host, follows them, and leaves none behind.

Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import pathlib
import selectors
import time
from collections.abc import Callable, Sequence
from typing import IO

from stagecraft.schemas.foreign_errors import cleaned
from stagecraft.trainer_module.parallel.roles import Role
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.process import Process, how_it_ended

_WORKER: tuple[str, ...] = ("-m", "stagecraft.trainer_module.parity.worker")

_LAST_LINES = 3
"""Of a log, in an error."""


class ProcessError(Exception):
    """A process died, hung, or said what is wrong; nothing of its topology runs any more."""


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
        log: all that they print is appended to it.
        start_seconds: how long they may take to find each other.
        seconds: how long they may take in all.
        on_phase: called with what they are at.

    Raises:
        ProcessError: the first cause.
    """
    started = time.monotonic()
    with open(log, "ab") as output, contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        members = []
        for role, task in tasks:
            member = _Member(role, task, output)
            stack.callback(member.process.end)
            members.append(member)
            selector.register(member.process.events, selectors.EVENT_READ, member)
        waited_for = {member for member in members if not member.role.serves}
        while waited_for:
            starting = [member.role.name for member in waited_for if not member.started]
            deadline = started + (start_seconds if starting else seconds)
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() >= deadline:
                raise ProcessError(_too_slow(starting, waited_for, start_seconds, seconds, log))
            for key, _ in ready:
                member = key.data
                for event in member.read():
                    if event["event"] == "phase" and member is members[0]:
                        on_phase(event["phase"])
                if not member.ended:
                    continue
                selector.unregister(member.process.events)
                if not member.done:
                    raise ProcessError(member.cause(log))
                waited_for.discard(member)


class _Member:
    """A running process."""

    def __init__(self, role: Role, task: str, output: IO[bytes]):
        self.role = role
        self.started = self.done = self.ended = False
        self._message = ""
        self.process = Process(
            _WORKER, [task], environment={"TF_CONFIG": role.tf_config}, output=output
        )

    def read(self) -> list[Event]:
        """Events that have come; at the end of the pipe the process has ended."""
        events = self.process.read()
        if events is None:
            self.ended = True
            return []
        for event in events:
            self.started |= event["event"] == "started"
            self.done |= event["event"] == "done"
            self._message = event.get("message", self._message)
        return events

    def cause(self, log: pathlib.Path) -> str:
        """Why it ended without having done its part."""
        if self._message:
            return self._message if self.role.tf_config is None else f"{self._named}{self._message}"
        how = how_it_ended(self.process.wait())
        return f"{self._named}the process {how}; {_tail(log)}"

    @property
    def _named(self) -> str:
        return "" if self.role.tf_config is None else f"{self.role.name}: "


def _too_slow(
    starting: list[str],
    waited_for: set[_Member],
    start_seconds: float,
    seconds: float,
    log: pathlib.Path,
) -> str:
    if starting:
        return f"{', '.join(sorted(starting))}: not ready after {start_seconds:.0f} s; {_tail(log)}"
    names = ", ".join(sorted(member.role.name for member in waited_for))
    return f"{names}: not done after {seconds:.0f} s (parity.timeout_seconds); {_tail(log)}"


def _tail(log: pathlib.Path) -> str:
    text = log.read_text(errors="replace")[-20_000:]
    lines = [line.strip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    return cleaned(f"it said last: {' / '.join(lines)}") if lines else "it said nothing"
