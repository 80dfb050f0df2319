"""Lets the microbatches of a grid meet inside its stages, and writes down who was where.

    python meet.py STAGESxMICROBATCHES…

A microbatch leaves its stage only when all that the schedule has at the same time are inside
theirs: an engine that computes them one after the other never comes to an end, but for the
time-out. Prints a line of JSON for each grid:

    order       forward and backward, for each stage: the microbatches as they came in
    together    forward and backward: the most that were inside at once
    crowded     whether two were ever inside one stage
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module import schedule, topology
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.input_data import Batch
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

SIZE, CLASSES, PATIENCE_SECONDS = 2, 3, 60.0
MOST_STAGES = 4


class Way:
    """All microbatches' way through all stages, in one direction."""

    def __init__(self, cycles: Iterable[list[schedule.Cell]], stages: int):
        self._meetings = {}
        for cells in cycles:
            meeting = threading.Barrier(len(cells))
            self._meetings.update(dict.fromkeys(cells, meeting))
        self._lock = threading.Lock()
        self._inside: list[int] = []
        self.order: list[list[int]] = [[] for _ in range(stages)]
        self.together = 0
        self.crowded = False

    def pass_through(self, microbatch: int, stage: int) -> None:
        with self._lock:
            self.crowded |= stage in self._inside
            self._inside.append(stage)
            self.order[stage].append(microbatch)
            self.together = max(self.together, len(self._inside))
        self._meetings[microbatch, stage].wait(PATIENCE_SECONDS)
        with self._lock:
            self._inside.remove(stage)


class Meeting(keras.layers.Layer):
    """Lets its inputs through, each of which is its microbatch's number."""

    def __init__(self, stage: int, forward: Way, backward: Way):
        super().__init__(name=f"meeting{stage}")
        self._stage, self._forward, self._backward = stage, forward, backward

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def passes(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                return self._through(self._backward, values, upstream)

            return self._through(self._forward, values, values), gradient

        return passes(inputs * self.scale)

    def _through(self, way: Way, numbers: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        def let_through(numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
            way.pass_through(int(numbers[0, 0]), self._stage)
            return values

        result = tf.numpy_function(let_through, [numbers, values], values.dtype, stateful=False)
        result.set_shape(values.shape)
        return result


def meet(stages: int, microbatches: int) -> dict[str, Any]:
    rows = SIZE * microbatches
    settings = TrainingSettings(
        train=TrainSettings(batch_size=rows),
        parallel=ParallelSettings(
            strategy="grid",
            stages=stages,
            cuts=",".join(f"meeting{stage}" for stage in range(stages - 1)),
            microbatches=microbatches,
            virtual_devices=MOST_STAGES,
        ),
    )
    ways = {
        "forward": Way(schedule.forward(microbatches, stages), stages),
        "backward": Way(schedule.backward(microbatches, stages), stages),
    }

    def build(scope: AbstractContextManager[Any]) -> keras.Model:
        with scope:
            values = hidden = keras.Input((CLASSES,))
            for stage in range(stages):
                hidden = Meeting(stage, **ways)(hidden)
            return keras.Model(values, hidden)

    engine = make_engine(None, topology.resolve(settings.parallel), settings, 1, build)
    numbers = np.repeat(np.arange(microbatches, dtype=np.float32), SIZE)
    values = np.repeat(numbers[:, np.newaxis], CLASSES, axis=1)
    batch = Batch(values, np.zeros(rows, np.int64), np.ones(rows, np.float32))
    engine.gradients(next(engine.feed(tf.data.Dataset.from_tensors(batch))))
    return {
        "order": {name: way.order for name, way in ways.items()},
        "together": {name: way.together for name, way in ways.items()},
        "crowded": any(way.crowded for way in ways.values()),
    }


if __name__ == "__main__":
    # Who waits for the others holds one of the executor's threads.
    tf.config.threading.set_inter_op_parallelism_threads(2 * MOST_STAGES)
    for grid in sys.argv[1:]:
        print(json.dumps(meet(*map(int, grid.split("x")))))
