"""A process that tells events, and ends with the one that started it. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event

SCRATCH = "STAGECRAFT_SCRATCH"
"""Environment variable: the temporary folder of this process."""


class Process:
    """``python PROGRAM … ARGUMENT … DESCRIPTOR`` in a session of its own.

    DESCRIPTOR is where it writes its events; its standard input ends when this process does,
    however that ends (see :func:`end_with_parent`). It has a temporary folder of its own, which
    goes with it: TensorFlow's AutoGraph writes files there that only a normal end removes.
    """

    def __init__(
        self,
        program: Sequence[str],
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str | None],
        output: IO[bytes] | None = None,
        told: str = "",
    ):
        """Starts it.

        Args:
            program: such as ``("-m", "package.module")``.
            arguments: between that and the descriptor.
            environment: on top of this process's own; None takes a variable away.
            output: what it prints is written to; None: to the pipe :attr:`printed`.
            told: a line on its standard input.
        """
        own = dict(os.environ)
        # The user's own modules are found where this process finds them.
        own["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        own.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        own |= {key: value for key, value in environment.items() if value is not None}
        for key, value in environment.items():
            if value is None:
                own.pop(key, None)
        self._scratch = tempfile.mkdtemp(prefix="stagecraft-process-")
        own |= {"TMPDIR": self._scratch, SCRATCH: self._scratch}
        reader, writer = os.pipe()
        self.events: IO[bytes] = os.fdopen(reader, "rb", buffering=0)
        try:
            self._process = subprocess.Popen(
                [sys.executable, *program, *arguments, str(writer)],
                stdin=subprocess.PIPE,  # stays open: its end tells the process to end
                stdout=output or subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[writer],
                env=own,
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            self.events.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        finally:
            os.close(writer)
        assert self._process.stdin is not None
        if told:
            with contextlib.suppress(BrokenPipeError):  # it has ended already: events will tell
                self._process.stdin.write(told.encode() + b"\n")
        self.printed: IO[bytes] | None = self._process.stdout
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    def read(self) -> list[Event] | None:
        """Events that have come; None: it has closed the pipe."""
        chunk = self.events.read(1 << 16)
        if not chunk:
            return None
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def exit_code(self) -> int | None:
        """128 + n after signal n; None: it runs."""
        status = self._process.poll()
        return None if status is None else exit_codes.of_status(status)

    def wait(self) -> int:
        """Waits for its end; the exit code."""
        return exit_codes.of_status(self._process.wait())

    def signal(self, number: int) -> None:
        """Sends a signal to it, and not to what it has started."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it and whatever it has started; does not wait for that."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Waits for its end, and lets go of its pipes."""
        self._process.wait()
        self.events.close()
        for pipe in (self._process.stdin, self.printed):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def end(self) -> None:
        """Kills and closes."""
        self.kill()
        self.close()


def end_with_parent() -> None:
    """Ends this process, with whatever it has started, as soon as its standard input ends."""

    def wait() -> None:
        while os.read(0, 1024):  # not sys.stdin, whose lock the interpreter wants when it ends
            pass
        if scratch := os.environ.get(SCRATCH):  # nobody else is left who would
            shutil.rmtree(scratch, ignore_errors=True)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(exit_codes.PREEMPTED)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code == 128 + signal.SIGALRM:  # see rendezvous.py
        return "waited for another process in vain (parallel.start_timeout_seconds)"
    if code > 128 and code != exit_codes.LOST_PEER:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"
