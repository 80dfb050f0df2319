"""Runs a pipeline in a process of its own, follows and stops it, and cleans up after its end.

This process imports neither TFX nor TensorFlow, so that it starts, shows and stops at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO, Any

from stagecraft.pipeline.local.events import Event
from stagecraft.pipeline.local.interrupt import GRACE_SECONDS
from stagecraft.pipeline.local.spec import SCRATCH, RunSpec
from stagecraft.trainer_module.processes.process import Process, how_it_ended

# With -m, the current folder comes first on the path: there are the user's own model modules.
_WORKER = ("-m", "stagecraft.pipeline.local.worker")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: str
    """``ok``, ``failed``, ``interrupted`` (see ``signal``) or ``died``."""

    cause: str | None = None
    signal: int = 0
    """The signal that asked for the end, if ``interrupted``."""

    report: dict[str, Any] = dataclasses.field(default_factory=dict)


def supervise(spec: RunSpec, log: IO[bytes], on_event: Callable[[Event], None]) -> Outcome:
    """Runs a pipeline, with its output appended to ``log``; returns when nothing of it is left."""
    with _signals() as received:
        worker = Process(_WORKER, output=log, first_line=spec.to_json(), scratch_prefix=SCRATCH)
        end = None
        try:
            end = _follow(worker, received, on_event)
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(timeout=0.5)  # it has closed its pipe and is about to end
            worker.kill()
            worker.close()
        outcome = _outcome(end, worker.wait(), received)
        if outcome.status in ("interrupted", "died"):
            _sweep(spec, log, outcome.cause or "")
        return outcome


def _follow(
    worker: Process, received: list[int], on_event: Callable[[Event], None]
) -> Event | None:
    """Passes events on until the worker ends; returns the ``end`` event, if there was one."""
    end: Event | None = None
    deadline: float | None = None
    while True:
        ready, _, _ = select.select([worker.events], [], [], 0.2)
        if ready:
            events = worker.read()
            if events is None:
                break
            for event in events:
                end = event if event["kind"] == "end" else end
                on_event(event)
        elif worker.exit_code() is not None:  # a child process may hold the pipe open
            break
        if received and deadline is None:
            worker.signal(signal.SIGTERM)
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline and (len(received) > 1 or time.monotonic() > deadline):
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
    command = [sys.executable, "-m", "stagecraft.pipeline.local.sweep"]
    with contextlib.suppress(subprocess.TimeoutExpired):  # then the next run does it
        subprocess.run(
            [*command, str(spec.output), spec.settings.name, cause],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=30,
            check=False,
        )


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects signals that ask to stop, instead of being stopped by them."""
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)

    stock = {
        number: signal.signal(number, remember)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN  # nohup, a shell's background job
    }
    try:
        yield received
    finally:
        for number, handler in stock.items():
            signal.signal(number, handler)


def open_log(folder: pathlib.Path) -> IO[bytes]:
    """A new log file, named by the time."""
    folder.mkdir(parents=True, exist_ok=True)
    return open(folder / time.strftime("%Y%m%d-%H%M%S.log"), "ab")
