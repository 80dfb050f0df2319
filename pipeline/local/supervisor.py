"""Runs a pipeline in a process of its own, follows and stops it, and cleans up after its end.

This process imports neither TFX nor TensorFlow, so that it starts, shows and stops at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from stagecraft.pipeline.local import layout
from stagecraft.pipeline.local.interrupt import GRACE_SECONDS, taken
from stagecraft.pipeline.local.protocol import SCRATCH, Event, RunSpec
from stagecraft.trainer_module.processes.process import Process, how_it_ended

# With -m, the current folder comes first on the path: there are the user's own model modules.
_WORKER = ("-m", "stagecraft.pipeline.local.worker")
_SWEEP = ("stagecraft.pipeline.local.sweep",)
_CANCEL = ("stagecraft.contrib.beam_engines.jobs",)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: str
    """``ok``, ``failed``, ``interrupted`` (see ``signal``), ``died``, or ``in use``: another run
    holds the output folder, so this one did not begin."""

    cause: str | None = None
    signal: int = 0
    """The signal that asked for the end, if ``interrupted``."""

    report: dict[str, Any] = dataclasses.field(default_factory=dict)
    left: tuple[str, ...] = ()
    """Jobs on Beam engines that may still run, in words."""


class _Jobs:
    """The run's jobs on Beam engines, from its ``job`` events."""

    def __init__(self) -> None:
        self._running: dict[str, Event] = {}
        self._left: list[str] = []
        self.grace = GRACE_SECONDS
        """Seconds that the run has after a signal; more while it cancels a job."""

    def apply(self, event: Event) -> None:
        """Applies an event."""
        if event["state"] in ("ended", "left"):
            self._running.pop(event["job"]["name"], None)
            self._left += [event["left"]] if event["state"] == "left" else []
        else:
            self._running[event["job"]["name"]] = event["job"]
        if event["state"] == "cancelling":
            self.grace = max(self.grace, GRACE_SECONDS + event["seconds"])

    def cancel(self, log: IO[bytes]) -> tuple[str, ...]:
        """Cancels the jobs that a dead run left; returns those that may still run, in words."""
        for job in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = _ran(_CANCEL, log, input=json.dumps(job).encode(), timeout=60)
                if done.returncode == 0:
                    self._left += [line for line in done.stdout.decode().splitlines() if line]
                    continue
            self._left.append(f"the {job['engine']} job {job['name']} may still run; cancel it")
        self._running.clear()
        return tuple(self._left)


def supervise(spec: RunSpec, log: IO[bytes], on_event: Callable[[Event], None]) -> Outcome:
    """Runs a pipeline, with its output appended to ``log``; returns when nothing of it is left."""
    received: list[int] = []  # signals that ask to stop
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    with taken(lambda number, _: received.append(number), *numbers):
        worker = Process(_WORKER, output=log, first_line=spec.to_json(), scratch_prefix=SCRATCH)
        end = None
        jobs = _Jobs()
        try:
            end = _follow(worker, received, jobs, on_event)
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(timeout=0.5)  # it has closed its pipe and is about to end
            worker.kill()
            worker.close()
        left = jobs.cancel(log)  # before the sweep, or they write into the removed folders
        outcome = dataclasses.replace(_outcome(end, worker.wait(), received), left=left)
        if outcome.status in ("interrupted", "died"):
            _sweep(spec, log, outcome.cause or "")
        return outcome


def _follow(
    worker: Process, received: list[int], jobs: _Jobs, on_event: Callable[[Event], None]
) -> Event | None:
    """Passes events on until the worker ends; returns the ``end`` event, if there was one."""
    end: Event | None = None
    asked: float | None = None
    while True:
        ready, _, _ = select.select([worker.events], [], [], 0.2)
        if ready:
            events = worker.read()
            if events is None:
                break
            for event in events:
                end = event if event["kind"] == "end" else end
                if event["kind"] == "job":
                    jobs.apply(event)
                on_event(event)
        elif worker.exit_code() is not None:  # a child process may hold the pipe open
            break
        if received and asked is None:
            worker.signal(signal.SIGTERM)
            asked = time.monotonic()
        if asked and (len(received) > 1 or time.monotonic() > asked + jobs.grace):
            break
    return end


def _outcome(end: Event | None, code: int, received: list[int]) -> Outcome:
    interrupted = end is not None and end["status"] == "interrupted"
    if interrupted or (received and (end is None or end["status"] != "ok")):
        return Outcome("interrupted", signal=received[0] if received else signal.SIGTERM)
    if end is not None:
        return Outcome(end["status"], cause=end["cause"], report=end["report"])
    if code <= 128:
        cause = f"the process that runs the pipeline ended by itself (exit code {code})"
        return Outcome("died", cause=cause)
    if code == 128 + signal.SIGKILL:
        why = (
            "most likely by the kernel, because memory ran out; see `dmesg`, and try a smaller "
            "train.batch_size or train.memory_limit_mb"
        )
    else:
        why = "which is a crash in native code; the log ends where it happened"
    cause = f"the process that runs the pipeline {how_it_ended(code)}, {why}"
    return Outcome("died", cause=cause)


def _sweep(spec: RunSpec, log: IO[bytes], cause: str) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):  # then the next run does it
        _ran([*_SWEEP, str(spec.output), spec.settings.name, cause], log, timeout=30)


def _ran(
    words: Sequence[str], log: IO[bytes], timeout: float, input: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Runs a module of Stagecraft, with its errors in the log."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        input=input,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
        timeout=timeout,
        check=False,
    )


def open_log(output: pathlib.Path) -> IO[bytes]:
    """A new log file in the output folder, named by the time.

    Raises:
        OutputError: it cannot be written.
    """
    folder = layout.logs(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return open(folder / time.strftime("%Y%m%d-%H%M%S.log"), "ab")
    except OSError as error:
        raise layout.OutputError(output, error) from error
