"""Measures the time from a Keras model to the end of its first step, on stages and microbatches.

    python benchmarks/engine/first_step.py [--blocks 12] [--blocks 24] [--rounds 3]
                                           [--topology 4x8] [--topology 4x2] [--topology 4x32]

The model is a functional transformer of equal blocks, of width 128, over 64 tokens, in batches of
32. ``keras`` is Keras's own ``train_on_batch`` on one device; a topology is stages x microbatches,
for ``stagecraft.engine`` (``engine``) and for the engine of the Trainer (``trainer``). The seconds
contain everything but the imports and the model itself: plan, placement, traces, TensorFlow's
optimizer, and the step. Each measurement has a process of its own; rounds alternate.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from typing import Any

from common import answer, engine_for, figures, options, repeated, spread

TOKENS, LENGTH, WIDTH, BATCH, CLASSES = 1000, 64, 128, 32, 10

ENGINES = ("engine", "trainer")


def main() -> None:
    parser = options(__doc__, rounds=3)
    parser.add_argument("--blocks", action="append", type=int, help="default: 12 and 24")
    parser.add_argument("--topology", action="append", help="default: 4x2, 4x8 and 4x32")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="default: both")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    args = parser.parse_args()
    topologies = args.topology or ["4x2", "4x8", "4x32"]
    if args.side:
        measure(args.side, args.blocks[0])
        return
    engines = args.engine or ENGINES
    sides = ["keras", *(f"{engine} {each}" for engine in engines for each in topologies)]
    found: dict[str, float] = {}
    print("blocks  side            seconds (range)       / keras (range)       peak GB")
    for blocks in args.blocks or [12, 24]:
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        peaks: dict[str, float] = {}
        for _ in range(args.rounds):
            for side in sides:
                taken, peaks[side] = answer("--side", side, "--blocks", blocks)
                seconds[side].append(taken)
        for side in sides:
            ratios = [a / b for a, b in zip(seconds[side], seconds["keras"], strict=True)]
            print(
                f"{blocks:6}  {side:14}  {spread(seconds[side]):20}  {spread(ratios):20}  "
                f"{peaks[side]:.2f}",
                flush=True,
            )
            if side != "keras":
                found[f"{blocks} blocks, {side}: first step / Keras's"] = statistics.median(ratios)
    figures(lower=found)


def measure(side: str, blocks: int) -> None:
    """Takes the first step in this process; prints its seconds, and the peak of memory in GB."""
    import numpy as np

    import stagecraft as sc
    from stagecraft.trainer_module.parallel.topology import configure_devices

    kind, _, topology = side.partition(" ")
    parallel = sc.Parallel()
    if topology:
        stages, microbatches = map(int, topology.split("x"))
        parallel = sc.Parallel(
            strategy="grid", stages=stages, microbatches=microbatches, virtual_devices=stages
        )
        configure_devices(parallel)
    import keras

    draw = np.random.default_rng(0)
    x = draw.integers(TOKENS, size=(BATCH, LENGTH))
    y = draw.integers(CLASSES, size=BATCH)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = transformer(blocks)
    start = time.perf_counter()
    if kind == "keras":
        model.compile("adam", loss, jit_compile=False)
        model.train_on_batch(x, y)
    elif kind == "engine":
        engine = sc.engine(model, loss=loss, optimizer="adam", parallel=parallel)
        engine.train_step((x, y))
    else:
        first_of_trainer(model, parallel, x, y)
    taken = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps([taken, peak]))


def transformer(blocks: int) -> Any:
    """A functional model."""
    import keras
    from keras import layers

    given = keras.Input((LENGTH,), dtype="int32")
    hidden = layers.Embedding(TOKENS, WIDTH)(given)
    for _ in range(blocks):
        attention = layers.MultiHeadAttention(4, WIDTH // 4)(hidden, hidden)
        hidden = layers.LayerNormalization()(layers.Add()([hidden, attention]))
        inner = layers.Dense(4 * WIDTH, "gelu")(hidden)
        added = layers.Add()([hidden, layers.Dense(WIDTH)(inner)])
        hidden = layers.LayerNormalization()(added)
    return keras.Model(given, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(hidden)))


def first_of_trainer(model: Any, parallel: Any, x: Any, y: Any) -> None:
    """Takes a step of the Trainer's engine."""
    from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

    train = TrainSettings(batch_size=BATCH, optimizer="adam", schedule="constant")
    settings = TrainingSettings(train=train, parallel=parallel)
    engine = engine_for(settings, steps=1, build=lambda scope: model)
    engine.train(engine.feed(repeated(x, y)), 1)


if __name__ == "__main__":
    main()
