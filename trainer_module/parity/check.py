"""Compares topologies with one device: runs both, and judges what they wrote.

Imports no TensorFlow: every computation is a process of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from stagecraft.trainer_module.data.tasks.task import ModelArguments
from stagecraft.trainer_module.parallel.cluster import Role, roles
from stagecraft.trainer_module.parity import criteria
from stagecraft.trainer_module.parity.cases import Case, changed_parallel
from stagecraft.trainer_module.parity.criteria import Finding
from stagecraft.trainer_module.parity.report import Row
from stagecraft.trainer_module.parity.task import BATCHES_PER_POINT, Results, Task, points
from stagecraft.trainer_module.processes import exit_codes, isolation, launcher
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.liveness import ProcessGroup
from stagecraft.trainer_module.processes.process import WorkerProcess
from stagecraft.trainer_module.settings import TrainingSettings

START_SECONDS = 120.0
"""Timeout until the processes of a topology are connected, imports included."""

_WORKER: tuple[str, ...] = launcher.WORKER

OnPhase = Callable[[str, str], None]
"""Called with a name (a topology, or the reference of one) and its phase."""


class ProcessError(Exception):
    """A process died, hung, or reported an error; no process of its topology is running."""


class _Reference(NamedTuple):
    path: pathlib.Path
    results: Results


@dataclasses.dataclass(eq=False)
class Check:
    """The parameters of all comparisons, and the references that topologies share."""

    data: pathlib.Path
    arguments: ModelArguments
    folder: pathlib.Path
    _: dataclasses.KW_ONLY
    steps: int
    timeout_seconds: float
    on_phase: OnPhase = lambda topology, phase: None

    def __post_init__(self) -> None:
        self._references: dict[tuple[Any, ...], _Reference | ProcessError] = {}
        self._has_state: bool | None = None  # the model; known from the first reference on

    def rows(self, cases: Iterable[Case]) -> Iterator[Row]:
        """Compares the topologies, one after the other."""
        for case in cases:
            reference = self._reference(case)
            started = time.monotonic()
            precision = case.settings.parallel.precision
            if isinstance(reference, ProcessError):
                cause = f"one device: {reference}"
                yield Row(topology=case.name, reference="one device", cause=cause)
                continue
            against = _against(case, reference.results)
            try:
                outputs = self._run(case.name, case.settings, str(reference.path))
            except ProcessError as error:
                seconds = time.monotonic() - started
                yield Row(topology=case.name, reference=against, seconds=seconds, cause=str(error))
                continue
            results = [Results(str(path)) for path in outputs]
            yield Row(
                topology=case.name,
                reference=against,
                findings=tuple(judge(results, reference.results, precision, self.steps)),
                trajectory=criteria.largest_difference(
                    results[0].under("trajectory/"), reference.results.under("trajectory/")
                ),
                float32=tuple(reference.results.notes.float32),
                random=tuple(reference.results.notes.random),
                precision=precision,
                seconds=time.monotonic() - started,
            )

    def _reference(self, case: Case) -> _Reference | ProcessError:
        mixed = case.settings.parallel.precision.startswith("mixed")
        settings = case.reference(same_parts=mixed or self._has_state is not False)
        key = _key(settings)
        if key in self._references:
            return self._references[key]
        reference: _Reference | ProcessError
        try:
            [path] = self._run(f"one device for {case.name}", settings, None)
        except ProcessError as error:
            reference = error
        else:
            reference = _Reference(path, Results(str(path)))
            self._has_state = reference.results.notes.has_state
            if not (mixed or self._has_state):  # then it took whole batches
                self._references[_key(case.reference(same_parts=False))] = reference
        self._references[key] = reference
        return reference

    def _run(
        self, name: str, settings: TrainingSettings, reference: str | None
    ) -> list[pathlib.Path]:
        """Runs the processes of a topology; returns their output files, the chief's first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tasks, outs = [], []
        for role in roles(changed_parallel(settings.parallel, evaluator=False)):
            stem = f"{name}-{role.name}".replace(" ", "_")
            out = self.folder / f"{stem}.npz"
            task = Task(
                settings=settings,
                arguments=self.arguments,
                data=str(self.data),
                steps=self.steps,
                out=str(out),
                reference=reference,
            )
            tasks.append((role, task))
            if not role.serves:
                outs.append(out)
        self.on_phase(name, "start")
        run(
            tasks,
            self.folder / f"{name}.log".replace(" ", "_"),
            start_seconds=min(START_SECONDS, self.timeout_seconds),
            seconds=self.timeout_seconds,
            on_phase=lambda phase: self.on_phase(name, phase),
        )
        return outs


def judge(
    results: list[Results], reference: Results, precision: str, steps: int
) -> Iterator[Finding]:
    """The worst finding of each criterion that applies."""
    yield criteria.worst(
        [_gradients(own, reference, precision, point) for own in results for point in points(steps)]
    )
    if not precision.startswith("mixed"):
        expected, amplified = reference.under("float64/"), reference.scalars("amplified/")
        where = f"after {steps} steps"
        yield criteria.worst(
            [
                criteria.trajectory(own.under("float64/"), expected, amplified, where)
                for own in results
            ]
        )
    replicas = [replica for own in results for replica in own.notes.replicas]
    if len(replicas) > 1:
        yield criteria.drift(replicas)


def _gradients(own: Results, reference: Results, precision: str, point: int) -> Finding:
    batches = [(f"{point}", each, f"after {point} steps") for each in range(BATCHES_PER_POINT)]
    if reference.under("copies/"):
        batches.append(("copies", 0, "of a batch of equal parts"))
    return criteria.worst(
        [
            criteria.gradients(
                own.under(f"{name}/gradients/{number}/"),
                reference.under(f"{name}/gradients/{number}/"),
                precision=precision,
                depths=reference.scalars("depth/"),
                magnitudes=reference.scalars(f"{name}/magnitude/{number}/"),
                roundings=reference.scalars(f"{name}/rounding/{number}/"),
                nonsmooth_ops=int(reference.under("nonsmooth_ops")[""]),
                where=where,
            )
            for name, number, where in batches
        ]
    )


def _key(settings: TrainingSettings) -> tuple[Any, ...]:
    """The settings as a key of a dictionary: they contain mappings."""
    return tuple(settings.flat().items())


def _against(case: Case, reference: Results) -> str:
    """Name of the reference, for people."""
    parts = reference.notes.parts
    return "one device" if parts == 1 else f"one device in {parts} accumulation steps"


def run(
    tasks: Sequence[tuple[Role, Task]],
    log: pathlib.Path,
    *,
    start_seconds: float,
    seconds: float,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> None:
    """Runs the processes of a topology to their end; ``log`` receives all that they print.

    Raises:
        ProcessError: the first cause.
    """

    def on_event(event: Event) -> None:
        if event["event"] == "phase":
            on_phase(event["phase"])

    started = time.monotonic()
    with (
        open(log, "a", buffering=1) as output,
        isolation.network(True, [], lambda reason: print(isolation.warning(reason), file=output))
        if any(role.tf_config for role, _ in tasks)
        else contextlib.nullcontext() as namespace,
        ProcessGroup(lambda process, line: print(line, file=output), on_event) as group,
    ):
        for role, task in tasks:
            group.add(WorkerProcess(role, _WORKER, {}, task.line(), namespace))
        while pending := group.unfinished:
            starting = [process for process in pending if not process.started]
            limit = start_seconds if starting else seconds
            remaining = started + limit - time.monotonic()
            if remaining < 0:
                names = ", ".join(sorted(process.role.name for process in starting or pending))
                problem = "not ready" if starting else "not done"
                setting = "" if starting else " (parity.timeout_seconds)"
                last_words = (starting or pending)[0].last_words()
                raise ProcessError(f"{names}: {problem} after {limit:.0f} s{setting}{last_words}")
            group.wait(min(remaining, 0.5))
            if failed := group.pop_failed():
                # A process that lost another one tells less than the other.
                failed.sort(key=lambda process: process.code == exit_codes.LOST_PEER)
                raise ProcessError(failed[0].cause())
