"""Runs the processes of a topology on this host: starts, watches, restarts, and leaves none behind.

What trains in step ends and starts together: ``tf.distribute`` takes nobody back, so when one
process is lost all are ended, and start again from the newest checkpoint. A worker of a parameter
server, and an evaluator, is started again by itself. Imports no TensorFlow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.roles import Role, roles
from stagecraft.trainer_module.processes.team import LostError, Member, Team
from stagecraft.trainer_module.settings import ParallelSettings

WORKER = ("-m", "stagecraft.trainer_module.worker")

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
        self._arguments = arguments
        self._told = told
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
            except LostError as error:
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
        with Team(self._write_log, self._parallel.silence_timeout_seconds) as team:
            for role, environment in zip(found, environments, strict=True):
                own = {"TF_CONFIG": role.tf_config, **environment}
                self._start(team, Member(role, self._program, self._arguments, own, self._told))
            while not team.is_done:
                for member, event in team.events():
                    if member is team.members[0]:
                        self._on_event(event)
                for member in team.ended():
                    self._replace(team, member)
                team.end_frozen()

    def _replace(self, team: Team, member: Member) -> None:
        """Of a process that has ended and had not done its part."""
        alone = member.role.job == "evaluator" or (
            member.role.job == "worker" and self._parallel.strategy == "parameter_server"
        )
        if not (alone and exit_codes.retryable(member.code)):
            raise team.cause()
        self._take_restart(member.cause())
        team.remove(member)
        self._start(team, member.again())

    def _start(self, team: Team, member: Member) -> None:
        team.add(member)
        self._on_event({"event": "process", "name": member.role.name, "pid": member.process.pid})
