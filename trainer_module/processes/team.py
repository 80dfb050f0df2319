"""The processes of one attempt, followed together. Imports no TensorFlow."""

from __future__ import annotations

import collections
import contextlib
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.process import Process, how_it_ended
from stagecraft.trainer_module.processes.roles import Role
from stagecraft.trainer_module.processes.watch import Watch

GRACE_SECONDS = 4.0
"""For a checkpoint, once this process was asked to stop; who asked waits a little longer."""

GATHER_SECONDS = 2.0
"""After the first process has ended: the others' reasons may say more."""

_QUIET_SECONDS = 4.0
"""Who lives tells so every second."""

_TICK_SECONDS = 0.5
_LAST_LINES = 5


class LostError(Exception):
    """A process is lost, and another attempt may go better."""


class Member:
    """A process in its role."""

    def __init__(
        self,
        role: Role,
        program: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str | None],
        told: str,
    ):
        self.role = role
        self._start = (program, arguments, environment, told)
        self.process = Process(program, arguments, environment=environment, told=told)
        self.done = False
        self.code: int | None = None  # it runs
        self._message = self._given_up = ""
        self._rest = b""
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)

    def again(self) -> Member:
        """A new process in the same role, at the same address."""
        return Member(self.role, *self._start)

    def note(self, event: Event) -> None:
        """Remembers what is asked for later."""
        self.done |= event["event"] == "done"
        if event["event"] == "failed":
            self._message = event["message"]

    def lines(self) -> list[str] | None:
        """Whole lines that it has printed; None: it has closed its output."""
        assert self.process.printed is not None
        chunk = self.process.printed.read(1 << 16)
        *lines, self._rest = (self._rest + (chunk or b"\n" * bool(self._rest))).split(b"\n")
        found = [line.decode(errors="replace").rstrip() for line in lines]
        self._last.extend(line for line in found if line)
        return found if chunk or found else None

    def give_up(self, why: str) -> None:
        """Ends it, because of what is told in words."""
        self._given_up = why
        self.process.signal(signal.SIGKILL)

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


class Team:
    """The processes of an attempt; none is left when the block ends."""

    def __init__(self, write_log: Callable[[str], None], silence: float):
        self.members: list[Member] = []
        self._write_log = write_log
        self._watch = Watch(silence)
        self._selector = selectors.DefaultSelector()
        self._ended: list[Member] = []

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):  # asked to stop
            with contextlib.suppress(KeyboardInterrupt):  # asked again
                self._ask_to_stop()
        for member in self.members:
            member.process.end()
        self._selector.close()

    def add(self, member: Member) -> None:
        """Takes a process in."""
        self.members.append(member)
        self._watch.begin(member.role.name)
        self._selector.register(member.process.events, selectors.EVENT_READ, member)
        assert member.process.printed is not None
        self._selector.register(member.process.printed, selectors.EVENT_READ, member)

    def remove(self, member: Member) -> None:
        """Lets one go that has ended."""
        self.members.remove(member)
        with contextlib.suppress(KeyError):
            self._selector.unregister(member.process.printed)  # type: ignore[arg-type]
        member.process.end()

    @property
    def is_done(self) -> bool:
        """Whether all that end by themselves have, well."""
        return all(m.role.serves or (m.done and m.code is not None) for m in self.members)

    def events(self, seconds: float = _TICK_SECONDS) -> list[tuple[Member, Event]]:
        """Waits a little; what has come since. What was printed goes to the log."""
        found: list[tuple[Member, Event]] = []
        for key, _ in self._selector.select(seconds):
            member: Member = key.data
            if key.fileobj is member.process.printed:
                self._print(member)
                continue
            events = member.process.read()
            if events is None:
                self._selector.unregister(member.process.events)
                member.code = member.process.exit_code()
                self._watch.end(member.role.name)
                self._ended.append(member)
                continue
            for event in events:
                member.note(event)
                self._watch.note(member.role.name, event)
                found.append((member, event))
        return found

    def ended(self) -> list[Member]:
        """Those that have ended since the last call, and have not done their part."""
        ended, self._ended = self._ended, []
        return [m for m in ended if not (m.done and m.code == 0)]

    def end_frozen(self) -> None:
        """Ends whoever gives no sign of life any more."""
        if found := self._watch.silent():
            name, why = found
            (member,) = [member for member in self.members if member.role.name == name]
            member.give_up(why)
            self._watch.end(name)

    def cause(self) -> Exception:
        """Of the end of an attempt: waits a little for what the other processes say."""
        deadline = time.monotonic() + GATHER_SECONDS
        while (left := deadline - time.monotonic()) > 0 and any(
            m.code is None for m in self.members if not m.role.serves
        ):
            self.events(left)
        lost = [m for m in self.members if m.code is not None and not (m.done and m.code == 0)]
        for_good = [m for m in lost if not exit_codes.retryable(m.code)]
        if for_good:
            return UserError(for_good[0].cause())
        # One that was lost by itself says more than one that lost it.
        lost.sort(key=lambda member: member.code == exit_codes.LOST_PEER)
        quiet = self._watch.quiet(_QUIET_SECONDS)
        seems = f"; {', '.join(quiet)} gave no sign of life" if quiet else ""
        return LostError(lost[0].cause() + seems)

    def _print(self, member: Member) -> None:
        lines = member.lines()
        if lines is None:
            self._selector.unregister(member.process.printed)  # type: ignore[arg-type]
        for line in lines or ():
            self._write_log(f"{member.role.name}: {line}")

    def _ask_to_stop(self) -> None:
        for member in self.members:
            if not member.role.serves and member.code is None:
                member.process.signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while (left := deadline - time.monotonic()) > 0 and any(
            m.code is None for m in self.members if not m.role.serves
        ):
            self.events(left)
