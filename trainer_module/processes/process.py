"""A child process that reports events and ends with its parent. Imports no TensorFlow."""

from __future__ import annotations

import atexit
import collections
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NoReturn

from stagecraft.common.errors import cleaned
from stagecraft.trainer_module.parallel.cluster import Role
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.isolation import Namespace

_LAST_LINES = 5
_LONGEST_LINE = 1 << 16

SCRATCH = "STAGECRAFT_SCRATCH"


def is_running(pid: int) -> bool:
    """Whether a process with this id exists on this machine, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the process of another user
    return True


class Process:
    """``python PROGRAM … DESCRIPTOR`` in a session of its own.

    The process writes its events to DESCRIPTOR. Its standard input closes when this process ends,
    even by SIGKILL. :meth:`close` removes its temporary folder, with TensorFlow's files.
    """

    def __init__(
        self,
        program: Sequence[str],
        *,
        environment: Mapping[str, str | None] | None = None,
        output: IO[bytes] | None = None,
        first_line: str = "",
        scratch_prefix: str = "stagecraft-process-",
        namespace: Namespace | None = None,
    ):
        """Starts the process; in ``environment``, None removes a variable of this process.

        ``output`` receives stdout and stderr; None: the pipe :attr:`printed` does. ``namespace``:
        the process's network; None: that of this process.
        """
        environment = dict(environment or {})
        self._scratch: str | None = None
        with contextlib.suppress(OSError):  # a full disk: the process itself reports that
            self._scratch = tempfile.mkdtemp(prefix=scratch_prefix)
            environment |= {"TMPDIR": self._scratch, SCRATCH: self._scratch}
        variables = {**os.environ, **environment}
        reader, writer = os.pipe()
        self.events: IO[bytes] = os.fdopen(reader, "rb", buffering=0)
        words = [sys.executable, *program, str(writer)]
        try:
            self._process = subprocess.Popen(
                namespace.command(words) if namespace else words,
                stdin=subprocess.PIPE,
                stdout=output or subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[writer, *(namespace.descriptors if namespace else ())],
                env={name: value for name, value in variables.items() if value is not None},
                start_new_session=True,  # Ctrl-C reaches it through this process only
                bufsize=0,
            )
        except BaseException:
            self.events.close()
            self._remove_scratch()
            raise
        finally:
            os.close(writer)
        assert self._process.stdin is not None
        if first_line:
            with contextlib.suppress(BrokenPipeError):  # it has ended: its exit code says why
                self._process.stdin.write(first_line.encode() + b"\n")
        self.printed: IO[bytes] | None = self._process.stdout
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Id of the process and of its group."""
        return self._process.pid

    def read(self) -> list[Event] | None:
        """Reads pending events; None: the process has closed the pipe."""
        chunk = self.events.read(1 << 16)
        if not chunk:
            return None
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def exit_code(self) -> int | None:
        """The exit code, 128 + n after signal n; None: the process is running."""
        status = self._process.poll()
        return None if status is None else exit_codes.of_status(status)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process; returns the exit code, or raises TimeoutExpired."""
        return exit_codes.of_status(self._process.wait(timeout))

    def signal(self, number: int) -> None:
        """Sends a signal to the process, not to its children."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kills the process and its children; does not wait for their end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Waits for the end of the process, and closes its pipes."""
        self._process.wait()
        self.events.close()
        for pipe in (self._process.stdin, self.printed):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)


def end_with_parent() -> None:
    """Ends this process and its children as soon as its standard input closes."""

    def wait() -> None:
        while os.read(0, 1024):  # not sys.stdin, whose lock the interpreter takes at exit
            pass
        if scratch := os.environ.get(SCRATCH):  # the parent, which would remove it, is gone
            shutil.rmtree(scratch, ignore_errors=True)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(exit_codes.PREEMPTED)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def run_and_exit(main: Callable[[], int]) -> NoReturn:
    """Runs ``main``, and ends this process with the exit code that it returns.

    After :func:`skip_destruction`, Python waits for threads and calls what is registered with
    ``atexit``, as always; then the process ends, before Python clears its modules.
    """
    code = 1

    def leave() -> None:
        if not _skips_destruction:
            return
        for end in (logging.shutdown, sys.stdout.flush, sys.stderr.flush):
            with contextlib.suppress(Exception):  # a closed pipe or file
                end()
        os._exit(code)

    atexit.register(leave)  # the first registered function is called last
    try:
        code = main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException:
        atexit.unregister(leave)
        raise
    sys.exit(code)


def skip_destruction() -> None:
    """Lets :func:`run_and_exit` end this process before Python destroys objects.

    TensorFlow may hang there if an iterator over a Python generator is still open.
    """
    global _skips_destruction
    _skips_destruction = True


_skips_destruction = False


def how_it_ended(code: int) -> str:
    """Says in words what an exit code means."""
    if code == 128 + signal.SIGALRM:  # see rendezvous.py
        return "timed out waiting for another process (parallel.start_timeout_seconds)"
    if code > 128 and code != exit_codes.LOST_PEER:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"


class WorkerProcess(Process):
    """A process of a :class:`~.liveness.ProcessGroup`."""

    def __init__(
        self,
        role: Role,
        program: Sequence[str],
        environment: Mapping[str, str | None],
        first_line: str,
        namespace: Namespace | None,
    ):
        self.role = role
        self._arguments = (role, program, environment, first_line, namespace)
        self.started = False  # it and its peers are connected
        self.done = False  # it has reported that its work is done
        self.refused = False  # it has reported an error in data, settings or code
        self.code: int | None = None  # its exit code; None: it is running
        self.closes_at: float | None = None
        """``time.monotonic()`` at which it is killed; None: no limit."""
        self._message = self._killed_because = ""
        self._rest = b""
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        variables = {
            # The process imports the user's modules from where this process does.
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1"),
            "TF_CONFIG": role.tf_config,
            **environment,
        }
        super().__init__(
            program,
            environment=variables,
            first_line=first_line,
            namespace=namespace,
        )

    def restarted(self) -> WorkerProcess:
        """Starts a process in the same role and at the same address."""
        return WorkerProcess(*self._arguments)

    @property
    def failed_first(self) -> bool:
        """Whether a signal or its silence ended it, rather than the loss of a peer."""
        by_signal = self.code is not None and self.code > 128
        secondary = (exit_codes.LOST_PEER, exit_codes.PREEMPTED)
        return bool(self._killed_because) or (by_signal and self.code not in secondary)

    def record(self, event: Event) -> None:
        """Updates the state from an event."""
        self.started |= event["event"] == "started"
        self.done |= event["event"] == "done"
        if event["event"] == "failed":
            self._message = event["message"]
            self.refused = event.get("refused", False)

    def lines(self) -> list[str] | None:
        """Reads pending whole lines of output; None: the process has closed its output."""
        assert self.printed is not None
        chunk = self.printed.read(_LONGEST_LINE)
        if len(self._rest) > _LONGEST_LINE or not chunk:
            self._rest += b"\n" * bool(self._rest)
        *raw, self._rest = (self._rest + (chunk or b"")).split(b"\n")
        lines = [line.decode(errors="replace").rstrip() for line in raw]
        self._last.extend(line for line in lines if line)
        return lines if chunk or lines else None

    def kill_because(self, reason: str) -> None:
        """Kills the process; :meth:`cause` will give the reason."""
        self._killed_because = reason
        self.kill()

    def cause(self) -> str:
        """Why the process ended before its work was done."""
        alone = self.role.tf_config is None
        if self._killed_because:
            return f"{self.role.name} {self._killed_because}"
        if self._message:
            return self._message if alone else f"{self.role.name}: {self._message}"
        assert self.code is not None
        text = f"{'the process' if alone else self.role.name} {how_it_ended(self.code)}"
        if self.code != 128 + signal.SIGKILL:  # its own output cannot explain that
            text += self.last_words()
        return text

    def last_words(self) -> str:
        """The end of its output, as a clause of an error message."""
        return cleaned(f"; its last output: {' / '.join(self._last)}") if self._last else ""
