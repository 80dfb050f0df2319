"""Lets the microbatches of a grid meet inside its stages, and writes down who was where.

    python meet.py SCHEDULE:STAGESxVIRTUALxMICROBATCHES…

A microbatch leaves its stage only when all that the schedule has at the same time are inside
theirs: an engine that computes them one after the other never comes to an end, but for the
time-out. Prints a line of JSON for each grid:

    order       for each device: the passes as they came in
    together    the most that were inside at once
    crowded     whether two were ever on one device
"""

import json
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

SIZE, CLASSES, PATIENCE_SECONDS = 2, 3, 60.0
MOST_STAGES = 3


class Clock:
    """All passes, at their times."""

    def __init__(self, name: str, microbatches: int, stages: int, virtual: int):
        orders = schedule.passes(name, microbatches, stages, virtual)
        parts = stages * virtual
        cycles: dict[float, list[schedule.Pass]] = {}
        # A pass back is as long as one forward: all that is at one time begins and ends together.
        for slot in schedule.timetable(orders, [1.0] * parts, [1.0] * parts):
            cycles.setdefault(slot.begin, []).append(slot.done)
        self._meetings = {}
        for cycle in cycles.values():
            self._meetings.update(dict.fromkeys(cycle, threading.Barrier(len(cycle))))
        self._lock = threading.Lock()
        self._inside: list[int] = []
        self._devices = stages
        self.order: list[list[schedule.Pass]] = [[] for _ in range(stages)]
        self.together = 0
        self.crowded = False

    def let_through(self, now: schedule.Pass) -> None:
        device = now.stage % self._devices
        with self._lock:
            self.crowded |= device in self._inside
            self._inside.append(device)
            self.order[device].append(now)
            self.together = max(self.together, len(self._inside))
        self._meetings[now].wait(PATIENCE_SECONDS)
        with self._lock:
            self._inside.remove(device)


class Meeting(keras.layers.Layer):
    """Lets its inputs through, each of which is its microbatch's number."""

    def __init__(self, stage: int, clock: Clock):
        super().__init__(name=f"meeting{stage}")
        self._stage, self._clock = stage, clock

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def passes(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                return self._through("backward", values, upstream)

            return self._through("forward", values, values), gradient

        if tf.executing_eagerly():  # the engine examines the model
            return inputs * self.scale
        return passes(inputs * self.scale)

    def _through(self, way: str, numbers: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        def let_through(numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
            self._clock.let_through(schedule.Pass(way, self._stage, int(numbers[0, 0])))
            return values

        result = tf.numpy_function(let_through, [numbers, values], values.dtype, stateful=False)
        result.set_shape(values.shape)
        return result


def meet(name: str, stages: int, virtual: int, microbatches: int) -> dict[str, Any]:
    rows = SIZE * microbatches
    settings = TrainingSettings(
        train=TrainSettings(batch_size=rows),
        parallel=ParallelSettings(
            strategy="grid",
            stages=stages,
            virtual_stages=virtual,
            cuts=",".join(f"meeting{part}" for part in range(stages * virtual - 1)),
            microbatches=microbatches,
            microbatch_schedule=name,
            virtual_devices=MOST_STAGES,
        ),
    )
    clock = Clock(name, microbatches, stages, virtual)

    def build(scope: AbstractContextManager[Any]) -> keras.Model:
        with scope:
            values = hidden = keras.Input((CLASSES,))
            for part in range(stages * virtual):
                hidden = Meeting(part, clock)(hidden)
            return keras.Model(values, hidden)

    engine = make_engine(None, topology.resolve(settings.parallel), settings, 1, build)
    numbers = np.repeat(np.arange(microbatches, dtype=np.float32), SIZE)
    values = np.repeat(numbers[:, np.newaxis], CLASSES, axis=1)
    batch = Batch(values, np.zeros(rows, np.int64), np.ones(rows, np.float32))
    engine.gradients(next(engine.feed(tf.data.Dataset.from_tensors(batch))))
    return {"order": clock.order, "together": clock.together, "crowded": clock.crowded}


if __name__ == "__main__":
    # Who waits for the others holds one of the executor's threads.
    tf.config.threading.set_inter_op_parallelism_threads(2 * MOST_STAGES)
    for grid in sys.argv[1:]:
        name, _, sizes = grid.partition(":")
        print(json.dumps(meet(name, *map(int, sizes.split("x")))))
