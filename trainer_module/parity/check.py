"""Holds topologies against one device: runs both, compares what they wrote.

Imports no TensorFlow: everything that computes is a process of its own.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from stagecraft.trainer_module.parallel.roles import roles
from stagecraft.trainer_module.parity import criteria, processes
from stagecraft.trainer_module.parity.cases import Case, changed_parallel
from stagecraft.trainer_module.parity.criteria import Finding
from stagecraft.trainer_module.parity.processes import ProcessError
from stagecraft.trainer_module.parity.report import Row
from stagecraft.trainer_module.parity.task import BATCHES_PER_POINT, Results, Task, points
from stagecraft.trainer_module.settings import TrainingSettings

START_SECONDS = 120.0
"""How long the processes of a topology may take to find each other, imports included."""

OnPhase = Callable[[str, str], None]
"""Called with what runs (a topology, or the reference of one) and what it is at."""


class _Reference(NamedTuple):
    path: pathlib.Path
    results: Results


class Check:
    """What is the same for all topologies, and the references that they share."""

    def __init__(
        self,
        data: pathlib.Path,
        num_classes: int,
        folder: pathlib.Path,
        *,
        steps: int,
        timeout_seconds: float,
        on_phase: OnPhase = lambda topology, phase: None,
    ):
        """Nothing runs yet.

        Args:
            data: as :attr:`~stagecraft.trainer_module.parity.task.Task.data`.
            num_classes: of the labels.
            folder: for files and logs.
            steps: of a trajectory.
            timeout_seconds: for one topology.
            on_phase: is told how it goes.
        """
        self._data, self._num_classes, self._folder = data, num_classes, folder
        self._steps, self._timeout = steps, timeout_seconds
        self._on_phase = on_phase
        self._references: dict[TrainingSettings, _Reference | ProcessError] = {}
        self._has_state: bool | None = None  # the model; known from the first reference on

    def rows(self, cases: Iterable[Case]) -> Iterator[Row]:
        """Compares one topology after the other."""
        for case in cases:
            reference = self._reference(case)
            started = time.monotonic()
            precision = case.settings.parallel.precision
            if isinstance(reference, ProcessError):
                yield Row(
                    topology=case.name, reference="one device", cause=f"one device: {reference}"
                )
                continue
            against = _against(case, reference.results)
            try:
                found = self._run(case.name, case.settings, str(reference.path))
            except ProcessError as error:
                seconds = time.monotonic() - started
                yield Row(topology=case.name, reference=against, seconds=seconds, cause=str(error))
                continue
            results = [Results(str(path)) for path in found]
            yield Row(
                topology=case.name,
                reference=against,
                findings=tuple(judge(results, reference.results, precision, self._steps)),
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
        key = case.reference(same_parts=mixed or self._has_state is not False)
        if key in self._references:
            return self._references[key]
        found: _Reference | ProcessError
        try:
            (path,) = self._run(f"one device for {case.name}", key, None)
        except ProcessError as error:
            found = error
        else:
            found = _Reference(path, Results(str(path)))
            self._has_state = found.results.notes.has_state
            if not (mixed or self._has_state):  # then it took whole batches
                self._references[case.reference(same_parts=False)] = found
        self._references[key] = found
        return found

    def _run(
        self, name: str, settings: TrainingSettings, reference: str | None
    ) -> list[pathlib.Path]:
        """What the processes of a topology wrote; the chief's first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        tasks, outs = [], []
        for role in roles(changed_parallel(settings.parallel, evaluator=False)):
            stem = f"{name}-{role.name}".replace(" ", "_")
            task = self._folder / f"{stem}.json"
            out = self._folder / f"{stem}.npz"
            Task(
                settings=settings,
                num_classes=self._num_classes,
                data=str(self._data),
                steps=self._steps,
                out=str(out),
                reference=reference,
            ).write(str(task))
            tasks.append((role, str(task)))
            if not role.serves:
                outs.append(out)
        self._on_phase(name, "start")
        processes.run(
            tasks,
            self._folder / f"{name}.log".replace(" ", "_"),
            start_seconds=min(START_SECONDS, self._timeout),
            seconds=self._timeout,
            on_phase=lambda phase: self._on_phase(name, phase),
        )
        return outs


def judge(
    results: list[Results], reference: Results, precision: str, steps: int
) -> Iterator[Finding]:
    """The worst finding of each criterion that applies.

    Args:
        results: of each process of the topology that trains.
        reference: of one device.
        precision: ``parallel.precision``.
        steps: of the trajectories.
    """
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
    found = [
        _of_batch(own, reference, precision, f"{point}", number, f"after {point} steps")
        for number in range(BATCHES_PER_POINT)
    ]
    if reference.under("copies/"):
        found.append(_of_batch(own, reference, precision, "copies", 0, "of a batch of equal parts"))
    return criteria.worst(found)


def _of_batch(
    own: Results, reference: Results, precision: str, point: str, number: int, where: str
) -> Finding:
    return criteria.gradients(
        own.under(f"{point}/gradients/{number}/"),
        reference.under(f"{point}/gradients/{number}/"),
        precision=precision,
        lengths=reference.scalars("length/"),
        magnitudes=reference.scalars(f"{point}/magnitude/{number}/"),
        roundings=reference.scalars(f"{point}/rounding/{number}/"),
        kinks=int(reference.under("kinks")[""]),
        where=where,
    )


def _against(case: Case, reference: Results) -> str:
    """What the topology is compared with, in words."""
    parts = reference.notes.parts
    return "one device" if parts == 1 else f"one device in {parts} accumulation steps"
