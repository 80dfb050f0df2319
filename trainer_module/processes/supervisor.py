"""Runs the processes of a topology on this host: starts, monitors and restarts them.

Workers that train in step start and end together: ``tf.distribute`` accepts no process back, so
when one is lost the supervisor ends all and starts them from the newest checkpoint. It restarts a
worker of a parameter server, and an evaluator, alone; each has its own count of restarts.
Imports no TensorFlow.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.parallel.roles import Role, roles
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.isolation import Namespace
from stagecraft.trainer_module.processes.process import WorkerProcess
from stagecraft.trainer_module.processes.process_group import ProcessGroup, ProcessLostError

WORKER = ("-m", "stagecraft.trainer_module.worker")

_ALL = "all"
_LONGEST_BACK_OFF = 30.0

_log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class Supervisor:
    """Runs a training of several processes to its end."""

    parallel: ParallelSettings
    arguments: Sequence[str]
    _: dataclasses.KW_ONLY
    first_line: str = ""
    write_log: Callable[[str], None]
    """Called with each line that a process prints, its role in front."""
    on_event: Callable[[Event], None]
    """Called with the chief's events, and with the supervisor's: ``process`` (``name``, ``pid``),
    ``lost`` (``message``) and ``restart`` (``number``, ``message``)."""
    environments: Callable[[Sequence[Role]], Sequence[Mapping[str, str | None]]]
    program: Sequence[str] = WORKER
    namespace: Namespace | None = None
    """The network of the processes; None: that of this process."""

    def __post_init__(self) -> None:
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
        """Seconds to wait before the restart; raises a UserError if no restart is left."""
        self.on_event({"event": "lost", "message": cause})
        limit, number = self.parallel.max_restarts, self._restarts[name] + 1
        if number > limit:
            after = f" after {limit} restarts (parallel.max_restarts)" if limit else ""
            raise UserError(
                f"Training stopped{after}: {cause}", setting="parallel.max_restarts", value=limit
            )
        self._restarts[name] = number
        _log.warning("%s; restart %d of at most %d", cause, number, limit)
        self.on_event({"event": "restart", "number": number, "message": cause})
        return float(min(2 ** min(number - 1, 10), _LONGEST_BACK_OFF))

    def _attempt(self) -> None:
        topology = roles(self.parallel)
        self._due = []
        with ProcessGroup(
            lambda process, line: self.write_log(f"{process.role.name}: {line}"),
            self.on_event,
            self.parallel.silence_timeout_seconds,
        ) as group:
            for role, environment in zip(topology, self.environments(topology), strict=True):
                process = WorkerProcess(
                    role,
                    self.program,
                    self.arguments,
                    environment,
                    self.first_line,
                    self.namespace,
                )
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
        own = strategy.find(self.parallel.strategy)
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
        for entry in [entry for entry in self._due if entry[0] <= time.monotonic()]:
            self._due.remove(entry)
            self._add(group, entry[1].restarted())

    def _add(self, group: ProcessGroup, process: WorkerProcess) -> None:
        group.add(process)
        self.on_event({"event": "process", "name": process.role.name, "pid": process.pid})
