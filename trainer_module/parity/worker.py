"""One process of a parity check, for one topology:

    python -m stagecraft.trainer_module.parity.worker TASK.json EVENTS

EVENTS is a file descriptor that a JSON object a line is written to: ``{"event": "started"}`` when
all processes of the topology have found each other, ``{"event": "phase", "phase": …}``, and at
the end ``{"event": "done"}`` or ``{"event": "failed", "message": …}``. It ends when its stdin
does, so that nothing is left running by a parent that was killed.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.schemas.errors import UserError
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module import cluster, topology
from stagecraft.trainer_module.assemble import assemble
from stagecraft.trainer_module.engines.base import Engine
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.engines.parameter_server import serve
from stagecraft.trainer_module.engines.strategies import connect
from stagecraft.trainer_module.input_data import Batch
from stagecraft.trainer_module.parity import cases
from stagecraft.trainer_module.parity.lengths import kinks, lengths
from stagecraft.trainer_module.parity.task import (
    BATCHES_PER_POINT,
    Notes,
    Results,
    Task,
    compared,
    points,
    save,
)
from stagecraft.trainer_module.processes.events import write
from stagecraft.trainer_module.processes.process import end_with_parent
from stagecraft.trainer_module.settings import TrainingSettings

_PROBES = 3
"""Gradients with random signs, from which the size of what is summed is seen."""

Tell = Callable[..., None]


def main(task_path: str, events: str) -> int:
    """Runs the task; the process's exit code."""
    end_with_parent()

    def tell(event: str, **fields: Any) -> None:
        write(int(events), {"event": event, **fields})

    try:
        _run(Task.read(task_path), tell)
    except UserError as error:
        tell("failed", message=str(error))
        return 1
    except Exception as error:  # whatever TensorFlow raises: the parent tells it
        traceback.print_exc()
        tell("failed", message=said(error))
        return 1
    tell("done")
    return 0


def _run(task: Task, tell: Tell) -> None:
    settings = task.settings
    here = cluster.read()
    if here and here.role in ("worker", "ps") and settings.parallel.strategy == "parameter_server":
        serve()
    devices = topology.resolve(settings.parallel)
    driver = _Driver(task, devices, connect(devices, settings.parallel))
    tell("started")
    arrays: dict[str, np.ndarray] = {}

    tell("phase", phase=settings.parallel.precision)
    if task.reference is None:
        has_state = driver.has_state(settings)
        if not (has_state or settings.parallel.precision.startswith("mixed")):
            settings = cases.whole_batches(settings)
        engine = driver.engine(settings)
        arrays |= driver.reference(engine, settings)
        arrays |= driver.sizes(settings)
    else:
        reference = Results(task.reference)
        has_state = reference.notes.has_state
        engine = driver.engine(settings)
        engine.train(engine.feed(driver.batches()), task.steps)
    arrays |= {f"trajectory/{name}": value for name, value in compared(engine.state())}
    replicas = [{name: _digest(v) for name, v in s.items()} for s in engine.replica_states()]
    if task.reference is not None:
        for point in points(task.steps):
            engine.restore(reference.under(f"{point}/state/"))
            arrays |= driver.gradients(engine, point)

    if task.in_float64:
        tell("phase", phase="float64")
        engine = driver.engine(cases.in_float64(settings))
        engine.train(engine.feed(driver.batches()), task.steps)
        arrays |= {f"float64/{name}": value for name, value in compared(engine.state())}
    engine.sum_over_workers([0.0])  # none ends while another needs it
    notes = Notes(parts=settings.parallel.parts, has_state=has_state, replicas=replicas)
    save(task.out, arrays, notes)


class _Driver:
    """Drives engines of one topology over fixed batches."""

    def __init__(
        self, task: Task, devices: topology.Topology, strategy: tf.distribute.Strategy | None
    ):
        self._task, self._devices, self._strategy = task, devices, strategy
        size = task.settings.train.batch_size
        with np.load(task.data) as file:
            images, labels = file["images"], file["labels"]
        self._count = len(labels) // size
        whole = slice(0, self._count * size)
        self._images = images[whole].reshape(self._count, size, *images.shape[1:])
        self._labels = labels[whole].reshape(self._count, size)
        worker, workers = devices.rows
        self._rows = slice(size * worker // workers, size * (worker + 1) // workers)

    def engine(self, settings: TrainingSettings) -> Engine:
        """A new engine, with weights of its own."""
        return make_engine(
            self._strategy, self._devices, settings, self._task.steps, self._build(settings)
        )

    def batches(self) -> tf.data.Dataset:
        """This worker's rows of the global batches, over and over."""
        weights = np.ones(self._labels.shape, np.float32)
        return self._dataset(self._images, self._labels, weights).repeat()

    def gradients(self, engine: Engine, point: int) -> dict[str, np.ndarray]:
        """``POINT/gradients/BATCH/PATH`` at the engine's weights."""
        return {
            f"{point}/gradients/{number}/{path}": value
            for number in range(BATCHES_PER_POINT)
            for path, value in self._gradients(engine, point + number, None).items()
        }

    def reference(self, engine: Engine, settings: TrainingSettings) -> dict[str, np.ndarray]:
        """Trains; at each point: state, gradients, and the size of what they are sums of."""
        arrays: dict[str, np.ndarray] = {}
        batches = engine.feed(self.batches())
        signs = np.random.RandomState(0).choice(
            np.array([-1, 1], np.float32), (_PROBES, settings.train.batch_size)
        )
        for point in points(self._task.steps):
            if point > engine.step:
                engine.train(batches, point - engine.step)
            arrays |= {f"{point}/state/{name}": v for name, v in engine.state().items()}
            for number in range(BATCHES_PER_POINT):
                plain = self._gradients(engine, point + number, None)
                probes = [plain, *(self._gradients(engine, point + number, s) for s in signs)]
                for path, value in plain.items():
                    norm = max(float(np.linalg.norm(np.float64(p[path]))) for p in probes)
                    arrays[f"{point}/gradients/{number}/{path}"] = value
                    arrays[f"{point}/magnitude/{number}/{path}"] = np.array(norm)
        return arrays

    def sizes(self, settings: TrainingSettings) -> dict[str, np.ndarray]:
        """``length/PATH`` and ``kinks``."""
        model = self._build(settings)()
        found = {f"length/{path}": np.array(n) for path, n in lengths(model, settings).items()}
        return found | {"kinks": np.array(kinks(model, settings))}

    def has_state(self, settings: TrainingSettings) -> bool:
        """Whether the model has statistics, which are those of a part of a batch."""
        state = self._build(settings)().non_trainable_variables
        return any("float" in str(variable.dtype) for variable in state)

    def _build(self, settings: TrainingSettings) -> Callable[..., keras.Model]:
        return functools.partial(
            assemble,
            settings.train,
            self._task.num_classes,
            precision=settings.parallel.precision,
        )

    def _gradients(
        self, engine: Engine, batch: int, weights: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        index = batch % self._count
        one = slice(index, index + 1)
        rows = np.ones(self._labels.shape[1], np.float32) if weights is None else weights
        dataset = self._dataset(self._images[one], self._labels[one], rows[np.newaxis])
        return engine.gradients(next(engine.feed(dataset)))[1]

    def _dataset(
        self, images: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> tf.data.Dataset:
        rows = self._rows
        parts = (images[:, rows], labels[:, rows], weights[:, rows])
        return tf.data.Dataset.from_tensor_slices(Batch(*parts))


def _digest(value: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
