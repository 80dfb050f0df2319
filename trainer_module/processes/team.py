"""The processes of one attempt, followed together. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel.roles import Role
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.member import Member
from stagecraft.trainer_module.processes.watch import Watch

GRACE_SECONDS = 4.0
"""For a checkpoint, once this process was asked to stop; who asked waits a little longer."""

GATHER_SECONDS = 2.0
"""After the first process has ended: the others' reasons may say more."""

LINGER_SECONDS = 10.0
"""For a process to end that has done its part, or has nothing more to tell."""

_QUIET_SECONDS = 4.0
"""Who lives tells so every second."""

_TICK_SECONDS = 0.5


class LostError(Exception):
    """A process is lost, and another attempt may go better."""


class Team:
    """The processes of an attempt; none is left when the block ends."""

    def __init__(
        self,
        write_log: Callable[[str], None],
        on_event: Callable[[Event], None],
        silence: float,
    ):
        """Nothing runs yet.

        Args:
            write_log: takes what they print, a line at a time, the role in front.
            on_event: takes the events of the first one, which is the chief.
            silence: seconds after which one that tells nothing counts as frozen.
        """
        self.members: list[Member] = []
        self._write_log = write_log
        self._on_event = on_event
        self._watch = Watch(silence)
        self._selector = selectors.DefaultSelector()
        self._ended: list[Member] = []
        self._all_done: float | None = None

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and not issubclass(kind, Exception):  # asked to stop
                with contextlib.suppress(KeyboardInterrupt):  # asked again
                    self.ask_to_stop()
        finally:
            for member in self.members:
                member.process.kill()
            for member in self.members:
                member.process.close()
            self._selector.close()

    def start(
        self,
        role: Role,
        program: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str | None],
        told: str,
    ) -> Member:
        """Starts a process; see :class:`~stagecraft.trainer_module.processes.process.Process`."""
        member = Member(role, program, arguments, environment, told)
        self.members.append(member)
        self._watch.begin(role.name)
        for pipe in (member.process.events, member.process.printed):
            self._selector.register(pipe, selectors.EVENT_READ, member)  # type: ignore[arg-type]
        return member

    def remove(self, member: Member) -> None:
        """Lets one go that has ended."""
        self.members.remove(member)
        self._unregister(member.process.events)
        self._unregister(member.process.printed)
        member.process.kill()
        member.process.close()

    @property
    def is_done(self) -> bool:
        """Whether all that end by themselves have, well.

        An evaluator that is not done when the others are has kept nobody waiting, and is not
        waited for.
        """
        training = [m for m in self.members if not m.role.serves and m.role.job != "evaluator"]
        if not all(m.done and m.code is not None for m in training):
            return False
        self._all_done = self._all_done or time.monotonic()
        late = time.monotonic() - self._all_done > LINGER_SECONDS
        return late or all(m.done for m in self.members if m.role.job == "evaluator")

    def wait(self, seconds: float = _TICK_SECONDS) -> None:
        """Waits a little, and takes note of what has come."""
        for key, _ in self._selector.select(seconds):
            member: Member = key.data
            if key.fileobj is member.process.printed:
                self._print(member)
            else:
                self._take(member)
        for member in self.members:
            if member.code is None:
                self._look_after(member)

    def ended(self) -> list[Member]:
        """Those that have ended since the last call, and have not done their part."""
        ended, self._ended = self._ended, []
        return [member for member in ended if not member.done]

    def end_frozen(self) -> None:
        """Ends whoever gives no sign of life any more."""
        if found := self._watch.silent():
            name, why = found
            (member,) = [member for member in self.members if member.role.name == name]
            member.give_up(why)
            self._watch.end(name)

    def cause(self) -> Exception:
        """Of the end of an attempt: waits a little for what the other processes say."""
        self._wait_for_all(GATHER_SECONDS)
        lost = [m for m in self.members if m.code is not None and not m.done]
        # Who has lost a peer may say so with any error of TensorFlow's.
        by_itself = any(member.lost_by_itself for member in lost)
        for_good = [
            member
            for member in lost
            if member.refused or not (by_itself or exit_codes.retryable(member.code))
        ]
        if for_good:
            return UserError(for_good[0].cause())
        lost.sort(key=lambda member: not member.lost_by_itself)
        quiet = self._watch.quiet(_QUIET_SECONDS)
        seems = f"; {', '.join(quiet)} gave no sign of life" if quiet else ""
        return LostError(lost[0].cause() + seems)

    def ask_to_stop(self) -> None:
        """Lets those that train save, and end."""
        for member in self.members:
            if not member.role.serves and member.code is None:
                member.process.signal(signal.SIGTERM)
        self._wait_for_all(GRACE_SECONDS)

    def _wait_for_all(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and any(
            m.code is None for m in self.members if not m.role.serves
        ):
            self.wait(min(left, _TICK_SECONDS))

    def _take(self, member: Member) -> None:
        """Events that have come."""
        events = member.process.read()
        if events is None:  # closed: it has ended, or is about to
            self._unregister(member.process.events)
            member.closes_at = member.closes_at or time.monotonic() + LINGER_SECONDS
            return
        for event in events:
            member.note(event)
            self._watch.note(member.role.name, event)
            if event["event"] == "done":
                member.closes_at = time.monotonic() + LINGER_SECONDS
            if member is self.members[0]:
                self._on_event(event)

    def _look_after(self, member: Member) -> None:
        """Whether it has ended; the pipe alone does not say so, which may live on in a child."""
        code = member.process.exit_code()
        if code is not None:
            self._take_rest(member)
            member.code = code
            self._watch.end(member.role.name)
            self._ended.append(member)
        elif member.closes_at is not None and time.monotonic() > member.closes_at:
            member.process.kill()

    def _take_rest(self, member: Member) -> None:
        """What it told before it ended."""
        with selectors.DefaultSelector() as own:
            own.register(member.process.events, selectors.EVENT_READ)
            while self._is_registered(member.process.events) and own.select(0):
                self._take(member)
        self._unregister(member.process.events)

    def _print(self, member: Member) -> None:
        lines = member.lines()
        if lines is None:
            self._unregister(member.process.printed)
        for line in lines or ():
            self._write_log(f"{member.role.name}: {line}")

    def _is_registered(self, pipe: object) -> bool:
        return pipe in self._selector.get_map()

    def _unregister(self, pipe: object) -> None:
        if self._is_registered(pipe):
            self._selector.unregister(pipe)  # type: ignore[arg-type]
