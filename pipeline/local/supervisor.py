"""Runs a pipeline in a process of its own, follows it, and stops it when asked.

This side imports neither TFX nor TensorFlow, so that it starts, shows and stops at once, and
whatever happens to the other process (out of memory, a crash in C++) is told and cleaned up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO, Any

from stagecraft.pipeline.local.events import Event
from stagecraft.pipeline.local.interrupt import GRACE_SECONDS
from stagecraft.pipeline.local.spec import SCRATCH, RunSpec

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
    """``stagecraft.pipeline.local.summary.report``."""


def supervise(spec: RunSpec, log: IO[bytes], on_event: Callable[[Event], None]) -> Outcome:
    """Runs a pipeline and returns when nothing of it is left running.

    Args:
        spec: what to run.
        log: everything that the worker prints, C++ included, is appended here.
        on_event: called with every event (:mod:`stagecraft.pipeline.local.events`).
    """
    with _signals() as received, _scratch() as scratch:
        reader, writer = os.pipe()
        worker = subprocess.Popen(
            [sys.executable, *_WORKER, str(writer)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[writer],
            start_new_session=True,  # Ctrl-C reaches it through here only
            env={**os.environ, **scratch},
        )
        os.close(writer)
        assert worker.stdin is not None
        end = None
        with contextlib.suppress(BrokenPipeError), os.fdopen(reader, "rb") as pipe:
            worker.stdin.write(spec.to_json().encode() + b"\n")
            worker.stdin.flush()  # and stays open: its end would tell the worker to stop
            end = _follow(worker, pipe, received, on_event)
        _kill(worker)
        outcome = _outcome(end, worker.returncode, received)
        if outcome.status in ("interrupted", "died"):
            _sweep(spec, log, outcome.cause or "")
        return outcome


def _follow(
    worker: subprocess.Popen[bytes],
    pipe: IO[bytes],
    received: list[int],
    on_event: Callable[[Event], None],
) -> Event | None:
    """Passes events on until the worker ends; the ``end`` event, if there was one."""
    end: Event | None = None
    deadline: float | None = None
    buffer = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], 0.2)
        if ready:
            chunk = os.read(pipe.fileno(), 1 << 16)
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                end = event if event["kind"] == "end" else end
                on_event(event)
            if not chunk:
                break
        elif worker.poll() is not None:  # its pipe may live on in a process that it started
            break
        if received and deadline is None:
            worker.terminate()
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline and (len(received) > 1 or time.monotonic() > deadline):
            break
    return end


def _kill(worker: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the worker and of the processes that it started."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(timeout=0.5)  # it has closed its pipe and is about to end
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    assert worker.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        worker.stdin.close()


def _outcome(end: Event | None, returncode: int, received: list[int]) -> Outcome:
    interrupted = end is not None and end["status"] == "interrupted"
    if interrupted or (received and (end is None or end["status"] != "ok")):
        return Outcome("interrupted", signal=received[0] if received else signal.SIGTERM)
    if end is not None:
        return Outcome(end["status"], cause=end["cause"], report=end["report"])
    if returncode >= 0:
        cause = f"the process that runs the pipeline ended by itself (exit code {returncode})"
        return Outcome("died", cause=cause)
    name = signal.Signals(-returncode).name
    if -returncode == signal.SIGKILL:
        why = (
            "most likely by the kernel, because memory ran out; see `dmesg`, and try a smaller "
            "train.batch_size or train.memory_limit_mb"
        )
    else:
        why = "which is a crash in native code; the log ends where it happened"
    cause = f"the process that runs the pipeline was ended by {name}, {why}"
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
def _scratch() -> Iterator[dict[str, str]]:
    """A temporary folder for the run's processes, removed when none of them is left.

    They end without Python's exit handlers, by ``os._exit`` or killed, and TensorFlow's AutoGraph
    removes its files in such a handler.

    Yields:
        The environment variable that names the folder.
    """
    try:
        folder = tempfile.mkdtemp(prefix=SCRATCH)
    except OSError:  # such as a full disk, of which the run itself will tell
        yield {}
        return
    try:
        yield {"TMPDIR": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    """A new log file, named by the time.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return open(folder / time.strftime("%Y%m%d-%H%M%S.log"), "ab")
