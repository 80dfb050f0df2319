"""Do the stages of the grid work at the same time? Microbatches, against the ideal M*K/(M+K-1).

    python benchmarks/overlap.py [--rounds 5] [--forward-ms 20] [--backward-ms 40]
                                 [--schedule 1f1b --schedule gpipe]
                                 [--stages 2 --stages 4] [--microbatches 8]

K stages on emulated devices: a layer whose passes take their device for themselves and sleep, so
long for each microbatch. So the processors have no part in it, and what is missing to the ideal is
what the engine, TensorFlow's executor and waking up take. The naive split is the same engine with
one microbatch, which sleeps as long as the M microbatches together, and nothing is beside it. Both
are traced first, then interleaved.

Then the profiler watches one more step: the last two columns are the part of it in which stages
waited, by its timeline, and the (K-1)/(M+K-1) that is predicted.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import timed, versions

from stagecraft.trainer_module.data.input_data import Batch
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.planning import schedule
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings
from stagecraft.trainer_module.training.monitoring import timeline

STAGES, MICROBATCHES = (2, 3, 4), (2, 4, 8)
BATCH, CLASSES = 16, 4
THREADS = 16
"""A pass that sleeps holds one of the executor's threads."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--forward-ms", type=float, default=20.0, help="for each microbatch")
    parser.add_argument("--backward-ms", type=float, default=40.0, help="for each microbatch")
    parser.add_argument(
        "--schedule", choices=schedule.SCHEDULES, action="append", help="default: 1f1b"
    )
    parser.add_argument("--stages", type=int, action="append", help=f"default: {STAGES}")
    parser.add_argument(
        "--microbatches", type=int, action="append", help=f"default: {MICROBATCHES}"
    )
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # twelve engines are no retracing
    sys.setswitchinterval(1e-4)  # a thread that holds Python's lock is no part of a device
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    print(
        f"{versions()}; each microbatch {args.forward_ms:g} ms forward and "
        f"{args.backward_ms:g} ms backward in every stage; medians of {args.rounds} rounds"
    )
    print(
        "schedule  stages  microbatches  naive ms  step ms  speed-up  ideal  share of ideal  "
        "bubble  predicted"
    )
    for name, stages, microbatches in itertools.product(
        args.schedule or ["1f1b"], args.stages or STAGES, args.microbatches or MICROBATCHES
    ):
        scale = microbatches / BATCH / 1000
        seconds = args.forward_ms * scale, args.backward_ms * scale  # for each example
        sides = [stepper(name, stages, m, seconds) for m in (1, microbatches)]
        rounds = [[timed(step) for step in sides] for _ in range(args.rounds)]
        naive, ours = (statistics.median(times) * 1e3 for times in zip(*rounds, strict=True))
        # Round by round, so that what slows the machine down slows down both.
        found = statistics.median(one / other for one, other in rounds)
        ideal = schedule.speedup(microbatches, stages)
        with timeline.recording() as ops:
            sides[1]()
        print(
            f"{name:8}  {stages:6}  {microbatches:12}  {naive:8.1f}  {ours:7.1f}  {found:8.3f}  "
            f"{ideal:5.3f}  {found / ideal:14.1%}  {timeline.idle(timeline.spans_of(ops)):6.1%}  "
            f"{schedule.bubble(microbatches, stages):9.1%}",
            flush=True,
        )


def stepper(
    name: str, stages: int, microbatches: int, seconds: tuple[float, float]
) -> Callable[[], object]:
    """Takes one step of a grid; traced, and warm."""
    settings = TrainingSettings(
        train=TrainSettings(batch_size=BATCH, learning_rate=1e-6, weight_decay=0),
        parallel=ParallelSettings(
            strategy="grid",
            stages=stages,
            cuts=",".join(f"sleeper{k}" for k in range(stages - 1)),
            microbatches=microbatches,
            schedule=name,
            virtual_devices=max(STAGES),
        ),
    )
    devices = topology.resolve(settings.parallel)

    def build(scope: AbstractContextManager[Any]) -> keras.Model:
        with scope:
            hidden = values = keras.Input((CLASSES,))
            for k in range(stages):
                hidden = Sleeper(seconds, name=f"sleeper{k}")(hidden)
            return keras.Model(values, hidden)

    engine = make_engine(None, devices, settings, 1000, build)
    batches = engine.feed(data())
    engine.train(batches, 2)
    return lambda: engine.train(batches, 1)


def data() -> tf.data.Dataset:
    values = np.random.default_rng(0).standard_normal((BATCH, CLASSES), np.float32)
    batch = Batch(values, np.zeros(BATCH, np.int64), np.ones(BATCH, np.float32))
    return tf.data.Dataset.from_tensors(batch).repeat()


class Sleeper(keras.layers.Layer):
    """Scales its inputs; both ways it keeps its device busy for a time."""

    def __init__(self, seconds: tuple[float, float], name: str):
        """Takes the seconds for an example, forward and backward."""
        super().__init__(name=name)
        self._seconds = seconds
        self._busy = threading.Lock()

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        forward, backward = self._seconds

        @tf.custom_gradient
        def passes(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return self._occupied(values, forward), lambda upstream: self._occupied(
                upstream, backward
            )

        # In this order: the first stage's backward pass, too, has something to pass through.
        return passes(inputs * self.scale)

    def _occupied(self, values: tf.Tensor, seconds: float) -> tf.Tensor:
        def wait(array: np.ndarray) -> np.ndarray:
            with self._busy:
                time.sleep(seconds * len(array))
            return array

        # Stateful ops are ordered by automatic control dependencies, and nothing would overlap.
        result = tf.numpy_function(wait, [values], values.dtype, stateful=False)
        result.set_shape(values.shape)
        return result


if __name__ == "__main__":
    main()
