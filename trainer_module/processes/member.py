"""A process in its role, and what is known of it. Imports no TensorFlow."""

from __future__ import annotations

import collections
import signal
from collections.abc import Mapping, Sequence

from stagecraft.trainer_module.parallel.roles import Role
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.process import Process, how_it_ended

_LAST_LINES = 5
_LONGEST_LINE = 1 << 16


class Member:
    """One of a team."""

    def __init__(
        self,
        role: Role,
        program: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str | None],
        told: str,
    ):
        """Starts it; see :class:`Process`."""
        self.role = role
        self.start = (role, program, arguments, environment, told)
        """To start it again, in the same role and at the same address."""

        self.process = Process(program, arguments, environment=environment, told=told)
        self.done = False
        """Whether it has said that it has done its part."""

        self.refused = False
        """Whether it has said that data, settings or code are not as they should be."""

        self.code: int | None = None
        """Its exit code; None: it runs."""

        self.closes_at: float | None = None
        """When it has to have ended, ``time.monotonic()``; None: there is no need."""

        self._message = self._given_up = ""
        self._rest = b""
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)

    @property
    def lost_by_itself(self) -> bool:
        """Whether it was ended by a signal or for its silence, and not because of another one."""
        by_signal = self.code is not None and self.code > 128
        own = (exit_codes.LOST_PEER, exit_codes.PREEMPTED)
        return bool(self._given_up) or (by_signal and self.code not in own)

    def note(self, event: Event) -> None:
        """Remembers what is asked for later."""
        self.done |= event["event"] == "done"
        if event["event"] == "failed":
            self._message = event["message"]
            self.refused = event.get("refused", False)

    def lines(self) -> list[str] | None:
        """Whole lines that it has printed; None: it has closed its output."""
        assert self.process.printed is not None
        chunk = self.process.printed.read(_LONGEST_LINE)
        if len(self._rest) > _LONGEST_LINE or not chunk:
            self._rest += b"\n" * bool(self._rest)
        *lines, self._rest = (self._rest + (chunk or b"")).split(b"\n")
        found = [line.decode(errors="replace").rstrip() for line in lines]
        self._last.extend(line for line in found if line)
        return found if chunk or found else None

    def give_up(self, why: str) -> None:
        """Ends it, because of what is told in words."""
        self._given_up = why
        self.process.kill()

    def cause(self) -> str:
        """Why it ended without having done its part."""
        if self._given_up:
            return f"{self.role.name} {self._given_up}"
        if self._message:
            return f"{self.role.name}: {self._message}"
        assert self.code is not None
        told = f"{self.role.name} {how_it_ended(self.code)}"
        if self._last and self.code != 128 + signal.SIGKILL:  # which comes from outside
            told += f"; it said last: {' / '.join(self._last)}"[:600]
        return told
