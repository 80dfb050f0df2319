"""Compares the speed of ``stagecraft.fit`` with ``keras.Model.fit``.

    python benchmarks/engine/fit.py [--model cnn] [--model resnet20] … [--rounds 5]
                                    [--examples 2560] [--batch 128]

Each side trains in a process of its own; a round is one epoch of each, in turn. All train the same
Keras model on the same arrays in memory, with Adam, and all may use all cores. ``one`` is
Stagecraft on one device, ``replicas`` on a logical device for each core, which takes a part of
each batch. Stagecraft may take several steps in one call of TensorFlow
(``steps_per_execution="auto"``). The first epoch, which traces, does not count. Keras runs without
XLA, which makes all of them slower on CPUs.

Two columns say how much is left to win. The share of the peak: three times the floating-point
operations of the forward pass (``sc.plan``), by the fastest product of two matrices of
2,048 × 2,048 in float32. Busy cores: processor time, by cores and seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import psutil

from common import ARGUMENTS, CLASSES, ask, figures, options, spread, start, timed, versions

IDS, LENGTH, WIDTH = 1000, 32, 64
"""Of texts: numbers of tokens, of tokens in a text, and of features."""

COLUMNS, NUMBERS = 26, 13
"""Of the table: columns of words and of numbers, as in Criteo's."""

MODELS = ("cnn", "resnet20", "transformer", "lstm", "wide_deep")

SIDES = ("one", "replicas", "keras")


def main() -> None:
    parser = options(__doc__, rounds=5, examples=2560, batch=128)
    parser.add_argument("--model", action="append", choices=MODELS, help="default: all of them")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        serve(args.side, args.model[0], args.examples, args.batch)
        return
    peak = _peak()
    print(
        f"{versions()}; examples/s, median of {args.rounds} rounds of {args.examples} examples; "
        f"peak {peak:,.0f} GFLOP/s"
    )
    print("model        side      examples/s  / keras (range)       of the peak  busy")
    found = {}
    for name in args.model or MODELS:
        rates, busy = measured(name, args)
        flops = 3 * _flops(name)
        for side, values in rates.items():
            rate = statistics.median(values)
            ratios = [a / b for a, b in zip(values, rates["keras"], strict=True)]
            print(
                f"{name:11}  {side:8}  {rate:10,.0f}  {spread(ratios):20}  "
                f"{flops * rate / peak / 1e9:11.0%}  {statistics.median(busy[side]):4.0%}",
                flush=True,
            )
            if side != "keras":
                what = f"{name}, batch {args.batch}, {side}: speed, Stagecraft / Keras"
                found[what] = statistics.median(ratios)
    figures(higher=found)


Values = dict[str, list[float]]
"""Of each side, by round."""


def measured(name: str, args: argparse.Namespace) -> tuple[Values, Values]:
    """Examples per second, and the share of the cores' time that a side used."""
    words = (f"--model={name}", f"--examples={args.examples}", f"--batch={args.batch}")
    sides = {side: start(*words, f"--side={side}") for side in SIDES}
    rates: Values = {side: [] for side in sides}
    busy: Values = {side: [] for side in sides}
    try:
        for each in sides.values():  # traces, one after the other
            ask([each])
        for _ in range(args.rounds):
            for side, process in sides.items():
                before = _processor_seconds(process.pid)
                seconds = ask([process])
                used = _processor_seconds(process.pid) - before
                rates[side].append(args.examples / seconds)
                busy[side].append(used / seconds / _cores())
    finally:
        for process in sides.values():
            process.kill()
            process.communicate()
    return rates, busy


def _processor_seconds(process: int) -> float:
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


def _cores() -> int:
    return psutil.cpu_count(logical=False) or 1


def serve(side: str, name: str, examples: int, batch: int) -> None:
    """Trains an epoch for each line on standard input, and prints its seconds."""
    import keras

    import stagecraft as sc

    class Clock(keras.callbacks.Callback):
        """Seconds of the last epoch."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._start = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seconds = time.perf_counter() - self._start

    parallel = None
    if side == "replicas":
        sc.virtual_devices(_cores())
        parallel = sc.Parallel(strategy="mirrored", replicas=_cores())
    model, (x, y), clock = make(name), data(name, examples), Clock()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
    for number, _ in enumerate(sys.stdin):
        if side != "keras" and not number:
            sc.fit(
                *(model, x, y),
                steps_per_execution="auto",
                parallel=parallel,
                batch_size=batch,
                verbose=0,
            )
        else:
            model.fit(x, y, batch_size=batch, verbose=0, callbacks=[clock])
        print(f"seconds {clock.seconds if number else 0.0}", flush=True)


def make(name: str) -> Any:
    """A model of the pipeline, two blocks of a transformer, an LSTM, or a wide and deep table."""
    import keras

    from stagecraft.trainer_module.models.assemble import assemble
    from stagecraft.trainer_module.settings import TrainSettings

    if name in ("cnn", "resnet20"):
        return assemble(TrainSettings(model=name), ARGUMENTS)
    if name == "wide_deep":
        words = keras.Input((COLUMNS,), dtype="int32", name="words")
        numbers = keras.Input((NUMBERS,), name="numbers")
        wide = keras.layers.Flatten()(keras.layers.Embedding(IDS, 1)(words))
        deep = keras.layers.Flatten()(keras.layers.Embedding(IDS, 16)(words))
        deep = keras.layers.Concatenate()([deep, numbers])
        for units in (256, 128, 64):
            deep = keras.layers.Dense(units, "relu")(deep)
        outputs = keras.layers.Dense(CLASSES)(keras.layers.Concatenate()([wide, deep]))
        return keras.Model([words, numbers], outputs)
    given = keras.Input((LENGTH,), dtype="int32")
    hidden = keras.layers.Embedding(IDS, WIDTH)(given)
    if name == "lstm":
        return keras.Model(given, keras.layers.Dense(CLASSES)(keras.layers.LSTM(WIDTH)(hidden)))
    for _ in range(2):
        attention = keras.layers.MultiHeadAttention(4, WIDTH // 4)(hidden, hidden)
        hidden = keras.layers.LayerNormalization()(hidden + attention)
        inner = keras.layers.Dense(4 * WIDTH, "gelu")(hidden)
        hidden = keras.layers.LayerNormalization()(hidden + keras.layers.Dense(WIDTH)(inner))
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(given, keras.layers.Dense(CLASSES)(pooled))


def data(name: str, examples: int) -> tuple[Any, Any]:
    """Random inputs and labels."""
    import numpy as np

    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=examples)
    if name == "wide_deep":
        words = rng.integers(IDS, size=(examples, COLUMNS))
        return [words, rng.standard_normal((examples, NUMBERS), np.float32)], labels
    if name in ("cnn", "resnet20"):
        return rng.standard_normal((examples, *ARGUMENTS["input_shape"]), np.float32), labels
    return rng.integers(IDS, size=(examples, LENGTH)), labels


def _flops(name: str) -> float:
    """Floating-point operations of the forward pass of an example."""
    import stagecraft as sc

    return float(sum(stage.flops for stage in sc.plan(make(name), sc.Parallel()).stages))


def _peak() -> float:
    """GFLOP/s of the fastest of ten products of two matrices, on all cores."""
    import tensorflow as tf

    size = 2048
    matrix = tf.random.normal([size, size])
    product = tf.function(lambda: tf.linalg.matmul(matrix, matrix))
    product()
    return 2 * size**3 / min(timed(lambda: product().numpy()) for _ in range(10)) / 1e9


if __name__ == "__main__":
    main()
