"""Detects processes that are frozen or hang: one of them keeps all others waiting."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.parallel.cluster import Role
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.process import WorkerProcess

BEFORE_START = 6
"""Factor on the silence timeout before a start: imports and waiting for peers block heartbeats."""

PAUSE_SECONDS = 2.0
"""A longer gap between two checks means that this process was held up: the gap does not count."""

STANDSTILL_SECONDS = 120.0
STANDSTILL_STEPS = 20.0
"""A process hangs when it takes no step for both limits; steps: times its longest interval."""

LONGEST_SECONDS = 3600.0
"""Limit for phases of unknown length: the first steps, an evaluation, a checkpoint, an export."""

_BEFORE = ("resume", "precision")
"""Phases of progress before the first step."""


@dataclasses.dataclass
class _State:
    heard: float
    since: float
    """Time of its last start, phase or progress event."""
    started: bool = False
    phase: str = ""
    """The current phase; empty in a process that serves."""
    longest: float = 0.0
    """Longest interval between two progress events, in seconds."""


class LivenessMonitor:
    """Takes events, and finds processes that have fallen silent."""

    def __init__(self, silence: float, clock: Callable[[], float] = time.monotonic):
        """``silence``: seconds without an event after which a process counts as frozen."""
        self._silence = silence
        self._clock = clock
        self._states: dict[str, _State] = {}
        self._checked = clock()

    def begin(self, name: str) -> None:
        """Monitors a process from its start."""
        self._states[name] = _State(self._clock(), self._clock())

    def end(self, name: str) -> None:
        """Stops monitoring a process."""
        self._states.pop(name, None)

    def record(self, name: str, event: Event) -> None:
        """Updates the state of a process from its event."""
        state, now = self._states.get(name), self._clock()
        if state is None:
            return
        state.heard = now
        if event["event"] == "started":
            state.started = True
        elif event["event"] == "progress" and event.get("phase") not in _BEFORE:
            state.longest = max(state.longest, now - state.since)
        elif event["event"] == "phase":
            state.phase = event["phase"]
        else:
            return
        state.since = now

    def quiet(self, seconds: float) -> list[str]:
        """Processes that sent no event for ``seconds``."""
        now = self._clock()
        return [name for name, state in self._states.items() if now - state.heard > seconds]

    def find_frozen(self) -> tuple[str, str] | None:
        """Name of a process that is frozen or hangs, and a phrase that says so."""
        now = self._clock()
        if (paused := now - self._checked) > PAUSE_SECONDS:
            for state in self._states.values():
                state.heard += paused
                state.since += paused
        self._checked = now
        for name, state in self._states.items():
            silent, idle = now - state.heard, now - state.since
            if silent > self._silence * (1 if state.started else BEFORE_START):
                return name, (
                    f"sent no heartbeat for {silent:.0f} s (parallel.silence_timeout_seconds)"
                )
            limit = LONGEST_SECONDS
            if state.phase == "train" and state.longest:
                limit = min(limit, max(STANDSTILL_SECONDS, STANDSTILL_STEPS * state.longest))
            if state.phase and idle > limit:
                problem = "took no step" if state.phase == "train" else "made no progress"
                return name, f"{problem} for {idle:.0f} s"
        return None


GRACE_SECONDS = 4.0
"""Time for a checkpoint after a request to stop; the caller's own limit is a little longer."""

GATHER_SECONDS = 2.0
"""Wait after the first process has ended: the others may report a better reason."""

LINGER_SECONDS = 10.0
"""Time for a process to exit after its work is done or its event pipe is closed."""

_QUIET_SECONDS = 4.0
"""A process sends a heartbeat every second."""

_TICK_SECONDS = 0.5

_PIPE_READS = 3
"""Reads of 64 KiB that empty a pipe: its capacity, the end, and one to spare."""


class ProcessLostError(Exception):
    """A process is lost; another attempt may succeed."""


class ProcessGroup:
    """The processes of an attempt; the end of the block leaves none running."""

    def __init__(
        self,
        write_log: Callable[[WorkerProcess, str], None],
        on_event: Callable[[Event], None],
        silence: float = math.inf,
    ):
        """Starts nothing yet; ``on_event`` gets the events of the first process, the chief.

        ``silence``: seconds without an event after which a process counts as frozen.
        """
        self.processes: list[WorkerProcess] = []
        self._write_log = write_log
        self._on_event = on_event
        self._liveness = LivenessMonitor(silence)
        self._selector = selectors.DefaultSelector()
        self._ended: list[WorkerProcess] = []
        self._all_done: float | None = None

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and not issubclass(kind, Exception):  # KeyboardInterrupt
                with contextlib.suppress(KeyboardInterrupt):  # a second one
                    self.stop()
        finally:
            for process in self.processes:
                process.kill()
            for process in self.processes:
                process.close()
            self._selector.close()

    def add(self, process: WorkerProcess) -> None:
        """Follows a process from now on."""
        self.processes.append(process)
        self._liveness.begin(process.role.name)
        for pipe in (process.events, process.printed):
            self._selector.register(pipe, selectors.EVENT_READ, process)  # type: ignore[arg-type]

    def remove(self, process: WorkerProcess) -> None:
        """Removes a process that has ended."""
        self.processes.remove(process)
        self._unregister(process.events)
        self._unregister(process.printed)
        process.kill()
        process.close()

    @property
    def unfinished(self) -> list[WorkerProcess]:
        """Processes that must still end; servers and evaluators do not count."""
        return [
            p
            for p in self.processes
            if not (p.role.serves or p.role.job == "evaluator" or (p.done and p.code is not None))
        ]

    @property
    def is_done(self) -> bool:
        """Whether all processes that end by themselves have done their work.

        An evaluator gets :data:`LINGER_SECONDS` more than the others.
        """
        if self.unfinished:
            return False
        self._all_done = self._all_done or time.monotonic()
        late = time.monotonic() - self._all_done > LINGER_SECONDS
        return late or all(p.done for p in self.processes if p.role.job == "evaluator")

    def wait(self, seconds: float = _TICK_SECONDS) -> None:
        """Waits for output, events or ends for at most so long, and records them."""
        for key, _ in self._selector.select(seconds):
            self._read(key.data, key.fileobj)
        for process in self.processes:
            if process.code is None:
                self._check_end(process)

    def pop_failed(self) -> list[WorkerProcess]:
        """Processes that have ended since the last call before their work was done."""
        ended, self._ended = self._ended, []
        return [process for process in ended if not process.done]

    def kill_frozen(self) -> None:
        """Kills a process that gives no sign of life."""
        if frozen := self._liveness.find_frozen():
            name, reason = frozen
            [process] = [process for process in self.processes if process.role.name == name]
            process.kill_because(reason)
            self._liveness.end(name)

    def cause(self) -> Exception:
        """Why the attempt failed; waits a little for what the other processes report."""
        self._wait_for_all(GATHER_SECONDS)
        failed = [p for p in self.processes if p.code is not None and not p.done]
        # A process that lost a peer may report any error of TensorFlow.
        secondary = any(p.failed_first for p in failed)
        for process in failed:
            if process.refused or not (secondary or exit_codes.retryable(process.code)):
                return UserError(process.cause())
        first = min(failed, key=lambda process: not process.failed_first)
        quiet = self._liveness.quiet(_QUIET_SECONDS)
        frozen = f"; {', '.join(quiet)} sent no heartbeat" if quiet else ""
        return ProcessLostError(first.cause() + frozen)

    def stop(self) -> None:
        """Lets the processes that train save a checkpoint and end."""
        for process in self.processes:
            if not process.role.serves and process.code is None:
                process.signal(signal.SIGTERM)
        self._wait_for_all(GRACE_SECONDS)

    def _wait_for_all(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and any(
            p.code is None for p in self.processes if not p.role.serves
        ):
            self.wait(min(left, _TICK_SECONDS))

    def _read(self, process: WorkerProcess, pipe: object) -> None:
        """Reads what is pending in one of the process's pipes."""
        if pipe is process.printed:
            lines = process.lines()
            for line in lines or ():
                self._write_log(process, line)
            if lines is None:
                self._unregister(pipe)
            return
        events = process.read()
        if events is None:  # closed: the process has ended, or is about to
            self._unregister(pipe)
            process.closes_at = process.closes_at or time.monotonic() + LINGER_SECONDS
            return
        for event in events:
            process.record(event)
            self._liveness.record(process.role.name, event)
            if event["event"] == "done":
                process.closes_at = time.monotonic() + LINGER_SECONDS
            if process is self.processes[0]:
                self._on_event(event)

    def _check_end(self, process: WorkerProcess) -> None:
        """Polls the exit code: an open pipe proves nothing, since a child may hold it."""
        code = process.exit_code()
        if code is not None:
            for pipe in (process.events, process.printed):
                self._drain(process, pipe)
            process.code = code
            self._liveness.end(process.role.name)
            self._ended.append(process)
        elif process.closes_at is not None and time.monotonic() > process.closes_at:
            process.kill()

    def _drain(self, process: WorkerProcess, pipe: object) -> None:
        """Reads what a process wrote before it ended; its children may go on writing."""
        registered = self._selector.get_map()
        with selectors.DefaultSelector() as own:
            if pipe in registered:
                own.register(pipe, selectors.EVENT_READ)  # type: ignore[arg-type]
            for _ in range(_PIPE_READS):
                if pipe in registered and own.select(0):
                    self._read(process, pipe)
        self._unregister(pipe)

    def _unregister(self, pipe: object) -> None:
        with contextlib.suppress(KeyError):  # it is not registered
            self._selector.unregister(pipe)  # type: ignore[arg-type]


THREADS = "TF_NUM_INTRAOP_THREADS"
"""TensorFlow's variable: threads that run one op."""


def environments(
    parallel: ParallelSettings, roles: Sequence[Role], *, cores: int, gpus: Sequence[str]
) -> list[Mapping[str, str | None]]:
    """The environment variables of each role, in order.

    Processes that compute gradients share the cores evenly, unless ``TF_NUM_INTRAOP_THREADS`` is
    set. Each gets as many of the ``gpus``, if there are any, as the topology says. The only process
    of a training has all of them.
    """
    if len(roles) == 1:
        return [{}]
    by_workers = any(role.job == "worker" for role in roles)
    computing = [role for role in roles if role.job == ("worker" if by_workers else "chief")]
    # auto chooses from all GPUs, and has one process besides an evaluator.
    resolves = parallel.found.resolves
    each = len(gpus) if resolves else parallel.devices_per_worker
    needed = len(computing) * each
    if gpus and needed > len(gpus):
        raise SettingError(
            "parallel.workers",
            len(computing),
            f"with {each} devices each need {needed} GPUs, but this host has {len(gpus)}",
            f"parallel.workers: {max(1, len(gpus) // each)}, or parallel.virtual_devices: {each} "
            "for CPUs",
        )
    if gpus and parallel.device_names:
        raise SettingError(
            "parallel.devices",
            parallel.devices,
            "names GPUs, but several processes on this host must share its GPUs",
            "parallel.devices: auto, and set CUDA_VISIBLE_DEVICES to choose GPUs",
        )
    environments: list[Mapping[str, str | None]] = []
    for role in roles:
        own: dict[str, str | None] = {}
        if len(computing) > 1:
            own[THREADS] = os.environ.get(THREADS, str(max(1, cores // len(computing))))
        if gpus:
            own["CUDA_VISIBLE_DEVICES"] = "-1"
            if role in computing:
                first = computing.index(role) * each
                own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first : first + each])
        environments.append(own)
    return environments


def gpus(parallel: ParallelSettings) -> list[str]:
    """This host's GPUs that a training may use; none if the settings ask for CPUs."""
    import tensorflow as tf

    if parallel.virtual_devices or any(n.startswith("CPU") for n in parallel.device_names):
        return []
    count = len(tf.config.list_physical_devices("GPU"))
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (visible or [str(number) for number in range(count)])[:count]
