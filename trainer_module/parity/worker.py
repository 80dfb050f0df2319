"""One process of a parity check, for one topology:

    python -m stagecraft.trainer_module.parity.worker TASK.json EVENTS

EVENTS is a file descriptor for JSON lines: ``{"event": "started"}`` when all processes of the
topology are connected, ``{"event": "phase", "phase": …}``, and ``{"event": "done"}`` or
``{"event": "failed", "message": …}``. The process ends when its standard input closes.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.common.errors import UserError, said
from stagecraft.trainer_module.engines.factory import connect
from stagecraft.trainer_module.engines.training import Engine
from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.parallel import cluster, strategy, topology
from stagecraft.trainer_module.parity import cases, float64, tolerances
from stagecraft.trainer_module.parity.driver import Driver
from stagecraft.trainer_module.parity.task import Notes, Results, Task, compared, points, save
from stagecraft.trainer_module.processes.events import write
from stagecraft.trainer_module.processes.process import end_with_parent, run_and_exit
from stagecraft.trainer_module.settings import TrainingSettings

Emit = Callable[..., None]


def main(task_path: str, events: str) -> int:
    """Runs the task; returns the exit code of the process."""
    end_with_parent()

    def emit(event: str, **fields: Any) -> None:
        write(int(events), {"event": event, **fields})

    try:
        _run(Task.read(task_path), emit)
    except UserError as error:
        emit("failed", message=str(error))
        return 1
    except Exception as error:  # any error of TensorFlow: the parent reports it
        traceback.print_exc()
        emit("failed", message=said(error))
        return 1
    emit("done")
    return 0


def _run(task: Task, emit: Emit) -> None:
    settings = task.settings
    here = cluster.read()
    own = strategy.find(settings.parallel.strategy)
    if here and here.role in own.serves:
        own.serve()
    devices = topology.resolve(settings.parallel)
    connected = connect(devices, settings.parallel)
    emit("started")
    measure(task, devices, connected, emit)


def measure(
    task: Task, devices: topology.Topology, strategy: tf.distribute.Strategy | None, emit: Emit
) -> None:
    """Computes the results to compare, and writes the output file of the task."""
    driver = Driver(task, devices, strategy)
    reference = None if task.reference is None else Results(task.reference)
    settings = task.settings
    emit("phase", phase=settings.parallel.precision)
    with float64.forced(settings.parallel.precision):
        if reference is None:
            has_state = driver.has_state(settings)
            if not (has_state or settings.parallel.precision.startswith("mixed")):
                settings = cases.whole_batches(settings)
            engine = driver.engine(settings)
            arrays = driver.reference(engine, settings) | driver.depths(settings)
            final = dict(compared(engine.state()))
            in_parts = settings.parallel.parts > 1 and task.in_float64
            if in_parts and driver.compares_copies(settings):
                arrays |= _copies(driver, settings, arrays)
        else:
            has_state = reference.notes.has_state
            engine = driver.engine(settings)
            arrays, final = {}, driver.trajectory(engine)
        replicas = [{name: _digest(v) for name, v in s.items()} for s in engine.replica_states()]
        arrays |= {f"trajectory/{name}": value for name, value in final.items()}
        if reference is not None:
            arrays |= _gradients(task, driver, engine, reference)

    low: list[str] = []
    random = dropout.notes(driver.model(settings)) if reference is None else []
    if task.in_float64:
        emit("phase", phase="float64")
        settings = cases.in_float64(settings)
        with float64.forced("float64"):
            engine = driver.engine(settings)
            start = engine.state()
            final = driver.trajectory(engine)
            arrays |= {f"float64/{name}": value for name, value in final.items()}
            if reference is None:
                low = float64.exceptions(driver.model(settings))
                depth = max(float(arrays[name]) for name in arrays if name.startswith("depth/"))
                error = tolerances.rounding_of_sums("float32" if low else "float64", depth)
                arrays |= driver.amplified(engine, start, final, error)
    engine.sum_over_workers([0.0])  # barrier: an early exit looks like a crash to peers
    parts = settings.parallel.parts
    notes = Notes(parts=parts, has_state=has_state, replicas=replicas, float32=low, random=random)
    save(task.out, arrays, notes)


def _gradients(
    task: Task, driver: Driver, engine: Engine, reference: Results
) -> dict[str, np.ndarray]:
    """Gradients of a topology at the states of the reference."""
    arrays: dict[str, np.ndarray] = {}
    for point in points(task.steps):
        engine.restore(reference.under(f"{point}/state/"))
        arrays |= driver.gradients(engine, point)
    if reference.under("copies/"):
        engine.restore(reference.under("0/state/"))
        arrays |= driver.copies(engine, task.settings.parallel.parts)
    return arrays


def _copies(
    driver: Driver, settings: TrainingSettings, arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Gradients of a whole batch of equal parts, at the first state of the reference."""
    whole = cases.whole_batches(settings)
    engine = driver.engine(whole)
    first = "0/state/"
    engine.restore({n.removeprefix(first): v for n, v in arrays.items() if n.startswith(first)})
    return driver.whole_copies(engine, whole, settings.parallel.parts)


def _digest(value: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    run_and_exit(lambda: main(sys.argv[1], sys.argv[2]))
