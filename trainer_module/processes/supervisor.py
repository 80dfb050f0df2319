"""Runs the processes of a topology on this host: starts, watches, restarts, and leaves none behind.

What trains in step ends and starts together: ``tf.distribute`` takes nobody back, so when one
process is lost all are ended, and start again from the newest checkpoint. A worker of a parameter
server, and an evaluator, is started again by itself, each as often. Imports no TensorFlow.
"""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.parallel.roles import Role, roles
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.member import Member
from stagecraft.trainer_module.processes.team import LostError, Team

WORKER = ("-m", "stagecraft.trainer_module.worker")

_ALL = "all"
_LONGEST_BACK_OFF = 30.0

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs a training of several processes to its end."""

    def __init__(
        self,
        parallel: ParallelSettings,
        arguments: Sequence[str],
        *,
        told: str = "",
        write_log: Callable[[str], None],
        on_event: Callable[[Event], None],
        environments: Callable[[Sequence[Role]], Sequence[Mapping[str, str | None]]],
        program: Sequence[str] = WORKER,
    ):
        """Nothing runs yet.

        Args:
            parallel: the topology, and how often and how patiently it is tried.
            arguments: of each process.
            told: a line on the standard input of each.
            write_log: takes what the processes print, a line at a time, its role in front.
            on_event: takes the chief's events, and of its own ``process`` (``name``, ``pid``),
                ``lost`` (``message``) and ``restart`` (``number``, ``message``).
            environments: each role's own part of the environment.
            program: what the processes run, as :class:`Process` takes it.
        """
        self._parallel = parallel
        self._start = (program, arguments, told)
        self._write_log = write_log
        self._on_event = on_event
        self._environments = environments
        self._restarts: collections.Counter[str] = collections.Counter()
        self._due: list[tuple[float, Member]] = []

    def run(self) -> None:
        """Returns when the training is done; nothing of it runs any more, whatever happens.

        Raises:
            UserError: it cannot go on: the first cause.
        """
        while True:
            try:
                self._attempt()
                return
            except LostError as error:
                time.sleep(self._take_restart(_ALL, str(error)))

    def _take_restart(self, who: str, cause: str) -> float:
        """Seconds until they are to be started again.

        Raises:
            UserError: they have been too often.
        """
        self._on_event({"event": "lost", "message": cause})
        limit, number = self._parallel.max_restarts, self._restarts[who] + 1
        if number > limit:
            after = f" after {limit} restarts (parallel.max_restarts)" if limit else ""
            raise UserError(f"Training was given up{after}: {cause}")
        self._restarts[who] = number
        _log.warning("%s; restart %d of at most %d", cause, number, limit)
        self._on_event({"event": "restart", "number": number, "message": cause})
        return float(min(2 ** min(number - 1, 10), _LONGEST_BACK_OFF))

    def _attempt(self) -> None:
        found = roles(self._parallel)
        environments = self._environments(found)
        program, arguments, told = self._start
        self._due = []
        with Team(self._write_log, self._on_event, self._parallel.silence_timeout_seconds) as team:
            for role, environment in zip(found, environments, strict=True):
                own = {"TF_CONFIG": role.tf_config, **environment}
                self._tell(team.start(role, program, arguments, own, told))
            while not team.is_done:
                team.wait()
                for member in team.ended():
                    self._replace(team, member)
                self._start_due(team)
                team.end_frozen()

    def _replace(self, team: Team, member: Member) -> None:
        """Of a process that has ended and had not done its part."""
        job = member.role.job
        alone = job == "evaluator" or job in strategy.find(self._parallel.strategy).restarts_alone
        if not (alone and exit_codes.retryable(member.code)):
            raise team.cause()
        team.remove(member)
        try:
            seconds = self._take_restart(member.role.name, member.cause())
        except UserError:
            if job == "evaluator":
                _log.warning("%s is not started again: the others train on", member.role.name)
                return
            team.ask_to_stop()
            raise
        self._due.append((time.monotonic() + seconds, member))

    def _start_due(self, team: Team) -> None:
        due = [entry for entry in self._due if entry[0] <= time.monotonic()]
        for entry in due:
            self._due.remove(entry)
            self._tell(team.start(*entry[1].start))

    def _tell(self, member: Member) -> None:
        self._on_event({"event": "process", "name": member.role.name, "pid": member.process.pid})
