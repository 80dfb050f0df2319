"""Several models on one topology, in one process: TensorFlow is imported once.

    python several.py JOBS.json

JOBS.json is a list of objects: ``task`` is the line of a :class:`Task`, ``fault`` None or one of
:data:`FAULTS`. Without a fault all is computed that the worker computes, and else the gradients of
the first point, with the fault in the engine. A job that fails leaves a file ``.error`` in place of
its ``.npz``.
"""

import contextlib
import json
import pathlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import tensorflow as tf

from stagecraft.trainer_module.engines import gradient_sums, step_metrics
from stagecraft.trainer_module.engines.factory import connect
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.parity.task import Notes, Results, Task, save
from stagecraft.trainer_module.parity.worker import Driver, measure
from stagecraft.trainer_module.processes.training_task import TrainingTask


def _first(found: Any, other: Any) -> Any:
    """A sum over microbatches that leaves the others out."""
    del other
    return found


def _twice(found: Any, other: Any) -> Any:
    """A sum over microbatches that takes the others twice."""
    return tf.nest.map_structure(
        lambda one, two: one + 2 * two if one.dtype.is_floating else two, found, other
    )


def _own(tensors: Sequence[tf.Tensor], reduce: Any) -> list[tf.Tensor]:
    """An all-reduce in which each replica keeps what it has."""
    del reduce
    return list(tensors)


FAULTS = {
    "dropped": (step_metrics, "plus", _first),
    "doubled": (step_metrics, "plus", _twice),
    "not reduced": (gradient_sums, "by_dtype", _own),
}
"""What is patched, and by what."""


@contextlib.contextmanager
def _fault(name: str) -> Iterator[mock.Mock]:
    """The engine with a fault; fails where nothing has met it."""
    owner, attribute, replacement = FAULTS[name]
    with mock.patch.object(owner, attribute, autospec=True, side_effect=replacement) as patched:
        yield patched
    assert patched.called, f"{name}: the engine has no such place"


def _gradients(task: Task, devices: Topology, over: Any) -> None:
    assert task.reference is not None
    driver = Driver(task, devices, over)
    engine = driver.engine(task.settings)
    engine.restore(Results(task.reference).under("0/state/"))
    found = driver.gradients(engine, 0)
    save(task.out, found, Notes(parts=task.settings.parallel.parts, has_state=False, replicas=[]))


def main(path: str) -> None:
    """Runs the jobs, one after the other."""
    with open(path, encoding="utf-8") as file:
        jobs = json.load(file)
    tasks = [Task.of(TrainingTask.parsed(job["task"]).arguments) for job in jobs]
    devices = topology.resolve(tasks[0].settings.parallel)
    over = connect(devices, tasks[0].settings.parallel)
    for job, task in zip(jobs, tasks, strict=True):
        print(job, flush=True)
        try:
            if job["fault"]:
                with _fault(job["fault"]):
                    _gradients(task, devices, over)
            else:
                measure(task, devices, over)
        except Exception:  # its test fails; the others' need not
            pathlib.Path(task.out).with_suffix(".error").write_text(traceback.format_exc())


if __name__ == "__main__":
    main(sys.argv[1])
