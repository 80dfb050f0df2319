"""Trains in processes on this host, where the settings ask for several.

The supervisor starts, monitors and restarts them. Workers that train in step start and end
together: ``tf.distribute`` accepts no process back, so when one is lost the supervisor ends all and
starts them from the newest checkpoint. It restarts a worker of a parameter server, and an
evaluator, alone; each has its own count of restarts. Imports no TensorFlow.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.parallel.cluster import Role, jobs, roles
from stagecraft.trainer_module.parallel.topology import configure_devices
from stagecraft.trainer_module.processes import exit_codes, isolation, liveness
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.liveness import ProcessGroup, ProcessLostError
from stagecraft.trainer_module.processes.process import WorkerProcess
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import ParallelSettings

WORKER = ("-m", "stagecraft.trainer_module.worker", "-")
"""The program of a process that reads its task from standard input."""

_ALL = "all"
_LONGEST_BACK_OFF = 30.0

_log = logging.getLogger(__name__)
_progress = logging.getLogger("stagecraft.progress")

_begun: list[str] = []


def begin(task: str) -> None:
    """Notes that this process exists for a training, so that it starts no others."""
    _begun.append(task)


def is_begun() -> bool:
    """Whether this process exists for a training."""
    return bool(_begun)


def is_local(parallel: ParallelSettings) -> bool:
    """Whether this process starts local workers instead of training itself."""
    if parallel.launcher == "auto":
        return bool(jobs(parallel)) and not cluster.is_set()
    return parallel.launcher == "local"


def are_needed(parallel: ParallelSettings) -> bool:
    """Whether a script's process cannot train by itself, and starts local workers.

    The topology has several processes; or TensorFlow has started here without the logical devices
    of ``virtual_devices``, and makes them in a new process alone.
    """
    if cluster.is_set() or is_begun():
        return False
    if is_local(parallel):
        return True
    try:
        configure_devices(parallel)
    except UserError:
        return parallel.launcher == "auto"
    return False


def run_local(
    task: TrainingTask,
    parallel: ParallelSettings,
    *,
    on_event: Callable[[Event], None] | None = None,
    write_log: Callable[[str], None] | None = None,
    program: Sequence[str] = WORKER,
) -> None:
    """Trains in processes on this host, and waits for their end.

    If all files are local, and the system allows it, the processes have a network of their own.
    Otherwise an event ``progress`` with the phase ``network`` says so.

    Args:
        on_event: receives events of chief and supervisor; None: log them as progress.
        write_log: receives each line that the processes print; None: standard error.
    """
    on_event = on_event or _show

    def tell(reason: str) -> None:
        said = {"text": isolation.warning(reason), "level": logging.WARNING}
        on_event({"event": "progress", "phase": "network", "reason": reason, **said})

    wanted: AbstractContextManager[isolation.Namespace | None] = contextlib.nullcontext()
    if jobs(parallel):
        wanted = isolation.network(parallel.isolated, task.fields, tell)
    with wanted as namespace:
        Supervisor(
            parallel,
            first_line=task.line(),
            write_log=write_log or (lambda line: print(line, file=sys.stderr)),
            on_event=on_event,
            environments=lambda every: liveness.environments(
                parallel,
                every,
                cores=len(os.sched_getaffinity(0)),
                gpus=liveness.gpus(parallel),
            ),
            program=program,
            namespace=namespace,
        ).run()


def _show(event: Event) -> None:
    fields = {key: each for key, each in event.items() if key not in ("event", "text", "level")}
    if event["event"] == "progress":
        level, text = event.get("level", logging.INFO), event.get("text", event.get("phase"))
        _progress.log(level, "%s", text, extra={"progress": fields})
    elif event["event"] == "restart":
        _progress.warning(
            "restart %d: %s",
            event["number"],
            event["message"],
            extra={"progress": {"phase": "restart", "done": event["number"], **fields}},
        )


@dataclasses.dataclass(eq=False)
class Supervisor:
    """Runs a training of several processes to its end."""

    parallel: ParallelSettings
    _: dataclasses.KW_ONLY
    first_line: str = ""
    """The first line of the standard input of each process."""
    write_log: Callable[[str], None]
    """Called with each line that a process prints, its role in front."""
    on_event: Callable[[Event], None]
    """Called with the chief's events, and with the supervisor's: ``process`` (``name``, ``pid``),
    ``lost`` (``message``) and ``restart`` (``number``, ``message``)."""
    environments: Callable[[Sequence[Role]], Sequence[Mapping[str, str | None]]]
    program: Sequence[str] = WORKER
    namespace: isolation.Namespace | None = None
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
                    role, self.program, environment, self.first_line, self.namespace
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
        own = self.parallel.found
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
