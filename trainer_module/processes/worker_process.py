"""A process of a topology in its role, and what it has reported. Imports no TensorFlow."""

from __future__ import annotations

import collections
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from stagecraft.schemas.foreign_errors import cleaned
from stagecraft.trainer_module.parallel.roles import Role
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.process import Process, how_it_ended

_LAST_LINES = 5
_LONGEST_LINE = 1 << 16


class WorkerProcess(Process):
    """A process of a :class:`~.process_group.ProcessGroup`."""

    def __init__(
        self,
        role: Role,
        program: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str | None],
        first_line: str = "",
    ):
        """Starts the process in its role; see :class:`Process`."""
        self.role = role
        self._arguments = (role, program, arguments, environment, first_line)

        self.started = False
        """Whether it and its peers are connected."""

        self.done = False
        """Whether it has reported that its work is done."""

        self.refused = False
        """Whether it has reported an error in data, settings or code."""

        self.code: int | None = None
        """Its exit code; None: it is running."""

        self.closes_at: float | None = None
        """``time.monotonic()`` at which it is killed; None: no limit."""

        self._message = self._killed_because = ""
        self._rest = b""
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        variables = {
            # The process imports the user's modules from where this process does.
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1"),
            "TF_CONFIG": role.tf_config,
            **environment,
        }
        super().__init__(program, arguments, environment=variables, first_line=first_line)

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
