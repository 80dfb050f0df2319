"""Runs the processes of a topology on this host: starts, watches, restarts, and leaves none behind.

What trains in step ends and starts together: ``tf.distribute`` takes nobody back, so when one
process is lost all are ended, and start again from the newest checkpoint. A worker of a parameter
server, and an evaluator, is started again by itself. Imports no TensorFlow.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import exit_codes
from stagecraft.trainer_module.events import Event
from stagecraft.trainer_module.processes import Process, how_it_ended
from stagecraft.trainer_module.roles import Role, roles
from stagecraft.trainer_module.settings import ParallelSettings
from stagecraft.trainer_module.watch import Watch

WORKER = ("-m", "stagecraft.trainer_module.worker")

GRACE_SECONDS = 4.0
"""For a checkpoint, once this process was asked to stop; who asked waits a little longer."""

GATHER_SECONDS = 2.0
"""After the first process has ended: the others' reasons may say more."""

_LONGEST_BACK_OFF = 30.0
_TICK_SECONDS = 0.5
_LAST_LINES = 5

_log = logging.getLogger(__name__)


class _LostError(Exception):
    """A process is lost, and another attempt may go better."""


class Supervisor:
    """Runs a training of several processes to its end."""

    def __init__(
        self,
        parallel: ParallelSettings,
        arguments: Sequence[str],
        *,
        write_log: Callable[[str], None],
        on_event: Callable[[Event], None],
        environments: Callable[[Sequence[Role]], Sequence[Mapping[str, str | None]]],
        program: Sequence[str] = WORKER,
    ):
        """Nothing runs yet.

        Args:
            parallel: the topology, and how often and how patiently it is tried.
            arguments: of each process.
            write_log: takes what the processes print, a line at a time, its role in front.
            on_event: takes the chief's events, and ``lost`` and ``restart`` of its own.
            environments: each role's own part of the environment.
            program: what the processes run, as :class:`Process` takes it.
        """
        self._parallel = parallel
        self._arguments = arguments
        self._write_log = write_log
        self._on_event = on_event
        self._environments = environments
        self._program = program
        self._restarts = 0

    def run(self) -> None:
        """Returns when the training is done; nothing of it runs any more, whatever happens.

        Raises:
            UserError: it cannot go on: the first cause.
        """
        while True:
            try:
                self._attempt()
                return
            except _LostError as error:
                self._take_restart(str(error))
            time.sleep(min(2.0 ** (self._restarts - 1), _LONGEST_BACK_OFF))

    def _take_restart(self, cause: str) -> None:
        self._on_event({"event": "lost", "message": cause})
        limit = self._parallel.max_restarts
        if self._restarts == limit:
            after = f" after {limit} restarts (parallel.max_restarts)" if limit else ""
            raise UserError(f"Training was given up{after}: {cause}")
        self._restarts += 1
        _log.warning("%s; restart %d of at most %d", cause, self._restarts, limit)
        self._on_event({"event": "restart", "number": self._restarts, "message": cause})

    def _attempt(self) -> None:
        found = roles(self._parallel)
        environments = self._environments(found)
        with _Team(self._write_log, self._parallel.silence_timeout_seconds) as team:
            for role, environment in zip(found, environments, strict=True):
                own = {"TF_CONFIG": role.tf_config, **environment}
                team.add(_Member(role, self._program, self._arguments, own))
            while not team.is_done:
                for member, event in team.events():
                    if member is team.members[0]:
                        self._on_event(event)
                for member in team.ended():
                    self._replace(team, member)
                if frozen := team.frozen():
                    raise _LostError(frozen)

    def _replace(self, team: _Team, member: _Member) -> None:
        """Of a process that has ended and had not done its part."""
        alone = member.role.job == "evaluator" or (
            member.role.job == "worker" and self._parallel.strategy == "parameter_server"
        )
        if not (alone and exit_codes.retryable(member.code)):
            raise team.cause()
        self._take_restart(member.cause())
        team.replace(member, member.again())


class _Member:
    """A process in its role."""

    def __init__(
        self,
        role: Role,
        program: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str | None],
    ):
        self.role = role
        self._start = (program, arguments, environment)
        self.process = Process(program, arguments, environment=environment)
        self.done = False
        self.code: int | None = None  # it runs
        self._message = ""
        self._rest = b""
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)

    def again(self) -> _Member:
        """A new process in the same role, at the same address."""
        return _Member(self.role, *self._start)

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

    def cause(self) -> str:
        """Why it ended without having done its part."""
        if self._message:
            return f"{self.role.name}: {self._message}"
        assert self.code is not None
        said = f"; it said last: {' / '.join(self._last)}"[:600] if self._last else ""
        return f"{self.role.name} {how_it_ended(self.code)}{said}"


class _Team:
    """The processes of an attempt; none is left when the block ends."""

    def __init__(self, write_log: Callable[[str], None], silence: float):
        self.members: list[_Member] = []
        self._write_log = write_log
        self._watch = Watch(silence)
        self._selector = selectors.DefaultSelector()
        self._ended: list[_Member] = []

    def __enter__(self) -> _Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):  # asked to stop
            with contextlib.suppress(KeyboardInterrupt):  # asked again
                self._ask_to_stop()
        for member in self.members:
            member.process.end()
        self._selector.close()

    def add(self, member: _Member) -> None:
        """Takes a process in."""
        self.members.append(member)
        self._watch.begin(member.role.name)
        self._selector.register(member.process.events, selectors.EVENT_READ, member)
        assert member.process.printed is not None
        self._selector.register(member.process.printed, selectors.EVENT_READ, member)

    def replace(self, member: _Member, other: _Member) -> None:
        """Takes one in for another."""
        self.members.remove(member)
        with contextlib.suppress(KeyError):
            self._selector.unregister(member.process.printed)  # type: ignore[arg-type]
        member.process.end()
        self.add(other)

    @property
    def is_done(self) -> bool:
        """Whether all that end by themselves have, well."""
        return all(m.role.serves or (m.done and m.code is not None) for m in self.members)

    def events(self, seconds: float = _TICK_SECONDS) -> list[tuple[_Member, Event]]:
        """Waits a little; what has come since. What was printed goes to the log."""
        found: list[tuple[_Member, Event]] = []
        for key, _ in self._selector.select(seconds):
            member: _Member = key.data
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

    def ended(self) -> list[_Member]:
        """Those that have ended since the last call, and have not done their part."""
        ended, self._ended = self._ended, []
        return [m for m in ended if not (m.done and m.code == 0)]

    def frozen(self) -> str:
        """Which gives no sign of life any more, in words; empty: none."""
        return self._watch.silent()

    def cause(self) -> Exception:
        """Of the end of an attempt: waits a little for what the other processes say."""
        deadline = time.monotonic() + GATHER_SECONDS
        while (left := deadline - time.monotonic()) > 0 and any(
            m.code is None for m in self.members if not m.role.serves
        ):
            self.events(left)
        lost = [m for m in self.members if m.code is not None and not (m.done and m.code == 0)]
        for_good = [m for m in lost if not exit_codes.retryable(m.code or 0)]
        if for_good:
            return UserError(for_good[0].cause())
        # One that was lost by itself says more than one that lost it.
        lost.sort(key=lambda member: member.code == exit_codes.LOST_PEER)
        return _LostError(lost[0].cause())

    def _print(self, member: _Member) -> None:
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


def shares(processes: Sequence[Role]) -> list[dict[str, str | None]]:
    """Each role's part of this host's cores, as TensorFlow reads it.

    Those that compute share them evenly; what serves, or evaluates, takes no part in that.
    """
    computing = [role for role in processes if role.job == "worker"]
    each = max(1, len(os.sched_getaffinity(0)) // max(1, len(computing)))
    return [
        {"TF_NUM_INTRAOP_THREADS": os.environ.get("TF_NUM_INTRAOP_THREADS", str(each))}
        if len(computing) > 1
        else {}
        for _ in processes
    ]
