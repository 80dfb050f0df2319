"""Starts the processes of one topology on this host, follows them, and leaves none behind.

Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from stagecraft.trainer_module.settings import ParallelSettings

_WORKER: tuple[str, ...] = ("-m", "stagecraft.trainer_module.parity.worker")

_LAST_LINES = 3
"""Of a log, in an error."""


class ProcessError(Exception):
    """A process died, hung, or said what is wrong; nothing of its topology runs any more."""


@dataclasses.dataclass(frozen=True)
class Role:
    """One process."""

    name: str
    tf_config: str | None = None
    """Its environment's ``TF_CONFIG``, where it is one of several."""

    serves: bool = False
    """Whether it works for others, and never ends by itself."""


def roles(parallel: ParallelSettings) -> list[Role]:
    """The processes of a topology; those of several find each other on free loopback ports."""
    if parallel.strategy == "parameter_server":
        jobs = {"chief": 1, "worker": parallel.workers, "ps": 1}
    elif parallel.strategy == "multi_worker_mirrored" and parallel.workers > 1:
        jobs = {"worker": parallel.workers}
    else:
        return [Role("process")]
    ports = iter(_free_ports(sum(jobs.values())))
    cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for job, n in jobs.items()}
    return [
        Role(
            f"{job} {index}",
            json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
            serves="chief" in jobs and job != "chief",
        )
        for job, count in jobs.items()
        for index in range(count)
    ]


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
            stack.callback(member.end)
            members.append(member)
            selector.register(member.events, selectors.EVENT_READ, member)
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
                selector.unregister(member.events)
                if not member.done:
                    raise ProcessError(member.cause(log))
                waited_for.discard(member)


class _Member:
    """A running process."""

    def __init__(self, role: Role, task: str, output: IO[bytes]):
        reader, writer = os.pipe()
        environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        # The user's own models are found where this process finds them.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        if role.tf_config:
            environment["TF_CONFIG"] = role.tf_config
        self.role = role
        self.started = self.done = self.ended = False
        self._message = ""
        self._buffer = b""
        try:
            self._process = subprocess.Popen(
                [sys.executable, *_WORKER, task, str(writer)],
                stdin=subprocess.PIPE,  # stays open: its end would tell the process to end
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writer],
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(writer)
        self.events = os.fdopen(reader, "rb", buffering=0)

    def read(self) -> list[dict[str, Any]]:
        """Events that have come; at the end of the pipe the process has ended."""
        chunk = self.events.read(1 << 16)
        if not chunk:
            self.ended = True
            return []
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        events = [json.loads(line) for line in lines]
        for event in events:
            self.started |= event["event"] == "started"
            self.done |= event["event"] == "done"
            self._message = event.get("message", self._message)
        return events

    def cause(self, log: pathlib.Path) -> str:
        """Why it ended without having done its part."""
        if self._message:
            return self._message if self.role.tf_config is None else f"{self._named}{self._message}"
        self._process.wait()
        code = self._process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"{self._named}the process {how}; {_tail(log)}"

    @property
    def _named(self) -> str:
        return "" if self.role.tf_config is None else f"{self.role.name}: "

    def end(self) -> None:
        """Ends it and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.events.close()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


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
    return f"it said last: {' / '.join(lines)}"[:600] if lines else "it said nothing"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
