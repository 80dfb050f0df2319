"""Compares the overlap of stages with the ideal speed-up M*K/(M+K-1).

    python benchmarks/engine/overlap.py [--rounds 5] [--forward-ms 20] [--backward-ms 40]
                                        [--schedule 1f1b --schedule gpipe]
                                        [--stages 2 --stages 4] [--microbatches 8]
                                        [--virtual-stages 2]

K stages run on emulated devices. The layer of a stage locks its device and sleeps for a fixed time
per microbatch, so the CPU speed does not matter. With V virtual stages, each device has V layers,
each of which sleeps for one V-th of the time; the bubble is then (K-1)/(V*M+K-1). The difference
from the ideal is the time of the engine, of the TensorFlow executor and of waking up. The naive
split is the same engine with one microbatch, which sleeps as long as all M microbatches together.
Both sides are traced first, then alternate.

Then the profiler records one more step. The last two columns show the share of this step in which
stages waited, by its timeline, and the predicted bubble.
"""

from __future__ import annotations

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

from common import engine_for, figures, options, repeated, timed, versions
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings
from stagecraft.trainer_module.training.monitoring.timeline import find_spans, idle, record_ops

STAGES, MICROBATCHES = (2, 3, 4), (2, 4, 8)
BATCH, CLASSES = 16, 4
THREADS = 16
"""A pass that sleeps holds one of the executor's threads."""


def main() -> None:
    parser = options(__doc__, rounds=5)
    parser.add_argument("--forward-ms", type=float, default=20.0, help="per microbatch")
    parser.add_argument("--backward-ms", type=float, default=40.0, help="per microbatch")
    parser.add_argument(
        "--schedule", choices=schedule.SCHEDULES, action="append", help="default: 1f1b"
    )
    parser.add_argument("--stages", type=int, action="append", help=f"default: {STAGES}")
    parser.add_argument(
        "--microbatches", type=int, action="append", help=f"default: {MICROBATCHES}"
    )
    parser.add_argument("--virtual-stages", type=int, action="append", help="default: 1")
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # hides warnings about retracing: each engine is traced once
    sys.setswitchinterval(1e-4)  # a thread must not hold the GIL for long
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    print(
        f"{versions()}; each microbatch {args.forward_ms:g} ms forward and "
        f"{args.backward_ms:g} ms backward in every stage; medians of {args.rounds} rounds"
    )
    print(
        "schedule  stages  virtual  microbatches  naive ms  step ms  speed-up  ideal  "
        "share of ideal  bubble  predicted"
    )
    shares: dict[int, list[float]] = {}
    for name, stages, virtual, microbatches in itertools.product(
        args.schedule or ["1f1b"],
        args.stages or STAGES,
        args.virtual_stages or [1],
        args.microbatches or MICROBATCHES,
    ):
        if virtual > 1 and microbatches % stages:
            continue  # the schedule has no order for it
        scale = microbatches / BATCH / 1000
        seconds = args.forward_ms * scale, args.backward_ms * scale  # per example
        sides = [
            stepper(name, stages, 1, 1, seconds),
            stepper(name, stages, virtual, microbatches, seconds),
        ]
        rounds = [[timed(step) for step in sides] for _ in range(args.rounds)]
        naive, ours = (statistics.median(times) * 1e3 for times in zip(*rounds, strict=True))
        # Sides alternate, so that a busy machine slows down both.
        found = statistics.median(one / other for one, other in rounds)
        ideal = schedule.speedup(microbatches, stages, virtual)
        with record_ops() as ops:
            sides[1]()
        waited = idle(find_spans(ops, stages), stages)
        print(
            f"{name:8}  {stages:6}  {virtual:7}  {microbatches:12}  {naive:8.1f}  {ours:7.1f}  "
            f"{found:8.3f}  {ideal:5.3f}  {found / ideal:14.1%}  {waited:6.1%}  "
            f"{schedule.bubble(microbatches, stages, virtual):9.1%}",
            flush=True,
        )
        shares.setdefault(virtual, []).append(found / ideal)
    worst = {f"{each} virtual stages" if each > 1 else "stages": shares[each] for each in shares}
    figures(
        higher={
            f"{of}: {name} share of the ideal speed-up": function(values)
            for of, values in worst.items()
            for name, function in (("median", statistics.median), ("smallest", min))
        }
    )


def stepper(
    name: str, stages: int, virtual: int, microbatches: int, seconds: tuple[float, float]
) -> Callable[[], object]:
    """Returns a function that takes one step of a grid; it is traced and warm."""
    settings = TrainingSettings(
        train=TrainSettings(batch_size=BATCH, learning_rate=1e-6, weight_decay=0),
        parallel=ParallelSettings(
            strategy="grid",
            stages=stages,
            virtual_stages=virtual,
            cuts=",".join(f"sleeper{k}" for k in range(stages * virtual - 1)),
            microbatches=microbatches,
            microbatch_schedule=name,
            virtual_devices=max(STAGES),
        ),
    )

    def build(scope: AbstractContextManager[Any]) -> keras.Model:
        with scope:
            hidden = values = keras.Input((CLASSES,))
            locks = [threading.Lock() for _ in range(stages)]
            for k in range(stages * virtual):
                shares = seconds[0] / virtual, seconds[1] / virtual
                hidden = Sleeper(shares, locks[k % stages], name=f"sleeper{k}")(hidden)
            return keras.Model(values, hidden)

    engine = engine_for(settings, build=build)
    values = np.random.default_rng(0).standard_normal((BATCH, CLASSES), np.float32)
    batches = engine.feed(repeated(values, np.zeros(BATCH, np.int64)))
    engine.train(batches, 2)
    return lambda: engine.train(batches, 1)


class Sleeper(keras.layers.Layer):
    """Scales its inputs. Both passes keep the device busy for a fixed time."""

    def __init__(self, seconds: tuple[float, float], busy: threading.Lock, name: str):
        """Sets the seconds per example, forward and backward, and the lock of the device."""
        super().__init__(name=name)
        self._seconds = seconds
        self._busy = busy

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        forward, backward = self._seconds

        @tf.custom_gradient
        def passes(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return self._occupied(values, forward), lambda upstream: self._occupied(
                upstream, backward
            )

        # In this order, so that the first stage also has a backward pass.
        return passes(inputs * self.scale)

    def _occupied(self, values: tf.Tensor, seconds: float) -> tf.Tensor:
        def wait(array: np.ndarray) -> np.ndarray:
            with self._busy:
                time.sleep(seconds * len(array))
            return array

        # Automatic control dependencies would order stateful ops, and prevent overlap.
        result = tf.numpy_function(wait, [values], values.dtype, stateful=False)
        result.set_shape(values.shape)
        return result


if __name__ == "__main__":
    main()
