"""Runs the processes of a topology on this host: starts, monitors and restarts them.

Workers that train in step start and end together: ``tf.distribute`` accepts no process back, so
when one is lost the supervisor ends all and starts them from the newest checkpoint. It restarts a
worker of a parameter server, and an evaluator, alone; each has its own count of restarts.
Imports no TensorFlow.
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
from stagecraft.trainer_module.processes.process_group import ProcessGroup, ProcessLostError
from stagecraft.trainer_module.processes.worker_process import WorkerProcess

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
        first_line: str = "",
        write_log: Callable[[str], None],
        on_event: Callable[[Event], None],
        environments: Callable[[Sequence[Role]], Sequence[Mapping[str, str | None]]],
        program: Sequence[str] = WORKER,
    ):
        """Starts nothing yet.

        Args:
            parallel: the topology, the number of restarts and the timeouts.
            first_line: of each process's standard input.
            write_log: called with each line that a process prints, its role in front.
            on_event: called with the chief's events, and with the supervisor's: ``process``
                (``name``, ``pid``), ``lost`` (``message``) and ``restart`` (``number``,
                ``message``).
            environments: returns the environment variables that differ between roles.
            program: what the processes run, as :class:`Process` takes it.
        """
        self._parallel = parallel
        self._start = (program, arguments, first_line)
        self._write_log = write_log
        self._on_event = on_event
        self._environments = environments
        self._restarts: collections.Counter[str] = collections.Counter()
        self._due: list[tuple[float, WorkerProcess]] = []

    def run(self) -> None:
        """Returns when the training is done; leaves no process running, even on an error.

        Raises:
            UserError: the training cannot go on; the message is the first cause.
        """
        while True:
            try:
                self._attempt()
                return
            except ProcessLostError as error:
                time.sleep(self._count_restart(_ALL, str(error)))

    def _count_restart(self, name: str, cause: str) -> float:
        """Seconds to wait before the restart.

        Raises:
            UserError: no restart is left.
        """
        self._on_event({"event": "lost", "message": cause})
        limit, number = self._parallel.max_restarts, self._restarts[name] + 1
        if number > limit:
            after = f" after {limit} restarts (parallel.max_restarts)" if limit else ""
            raise UserError(
                f"Training stopped{after}: {cause}", setting="parallel.max_restarts", value=limit
            )
        self._restarts[name] = number
        _log.warning("%s; restart %d of at most %d", cause, number, limit)
        self._on_event({"event": "restart", "number": number, "message": cause})
        return float(min(2 ** min(number - 1, 10), _LONGEST_BACK_OFF))

    def _attempt(self) -> None:
        topology = roles(self._parallel)
        program, arguments, first_line = self._start
        self._due = []
        with ProcessGroup(
            lambda process, line: self._write_log(f"{process.role.name}: {line}"),
            self._on_event,
            self._parallel.silence_timeout_seconds,
        ) as group:
            for role, environment in zip(topology, self._environments(topology), strict=True):
                process = WorkerProcess(role, program, arguments, environment, first_line)
                self._add(group, process)
            while not group.is_done:
                group.wait()
                for process in group.pop_failed():
                    self._replace(group, process)
                self._start_due(group)
                group.kill_frozen()

    def _replace(self, group: ProcessGroup, process: WorkerProcess) -> None:
        """Schedules a failed process for a restart, where its role allows that."""
        role = process.role
        own = strategy.find(self._parallel.strategy)
        alone = role.job == "evaluator" or role.job in own.restarts_alone
        if not (alone and exit_codes.retryable(process.code)):
            raise group.cause()
        group.remove(process)
        try:
            seconds = self._count_restart(role.name, process.cause())
        except UserError:
            if role.job == "evaluator":
                _log.warning("%s does not restart: the training continues without it", role.name)
                return
            group.stop()
            raise
        self._due.append((time.monotonic() + seconds, process))

    def _start_due(self, group: ProcessGroup) -> None:
        due = [entry for entry in self._due if entry[0] <= time.monotonic()]
        for entry in due:
            self._due.remove(entry)
            self._add(group, entry[1].restarted())

    def _add(self, group: ProcessGroup, process: WorkerProcess) -> None:
        group.add(process)
        self._on_event({"event": "process", "name": process.role.name, "pid": process.pid})
