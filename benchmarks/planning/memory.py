"""Holds the memory that a plan predicts against the memory that a training step takes.

    python benchmarks/planning/memory.py [--blocks 6] [--width 256] [--length 128] [--batch 64]
                                         [--stages 2] [--microbatches 1 --microbatches 4 ...]

A transformer trains on logical CPUs, each case in a process of its own, with the engine of the
Trainer and with Keras's own fit. "Measured" is the most memory of all tensors but small ones in a
step, as TensorFlow's allocator counts it: weights, optimizer state, gradients and activations of
all stages, and the batch. "Predicted" is the sum over the stages of the plan. Numbers are MB.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from typing import Any

import numpy as np

from common import answer, engine_for, figures, options, repeated

STEPS = 3
ENGINES = ("Trainer", "Keras's fit")


def main() -> None:
    parser = options(__doc__, blocks=6, width=256, length=128, batch=64, stages=2)
    parser.add_argument("--microbatches", type=int, action="append", help="default: 1, 4 and 8")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        engine, microbatches, remat = args.child
        found = measure(args, engine, int(microbatches), remat == "on")
        print(json.dumps(found))
        return
    print(
        f"{args.blocks} blocks of width {args.width}, {args.length} tokens, {args.batch} examples"
    )
    print("engine       microbatches  remat  predicted  measured  predicted / measured")
    errors: dict[str, float] = {}
    for engine in ENGINES:
        for count in args.microbatches or [1, 4, 8]:
            for remat in ("off", "on"):
                found = run(args, engine, count, remat)
                ratio = found["predicted"] / found["measured"]
                print(
                    f"{engine:11}  {count:12}  {remat:>5}  {found['predicted']:9.0f}  "
                    f"{found['measured']:8.0f}  {ratio:20.2f}",
                    flush=True,
                )
                errors[engine] = max(errors.get(engine, 0.0), abs(ratio - 1))
    figures(lower={f"{name}: largest error of the memory": each for name, each in errors.items()})


def run(args: argparse.Namespace, engine: str, microbatches: int, remat: str) -> dict[str, float]:
    """Measures in a new process."""
    sizes = ("blocks", "width", "length", "batch", "stages")
    words = [word for name in sizes for word in (f"--{name}", getattr(args, name))]
    # TensorFlow counts the tensors of a CPU with oneDNN only, which is off on some processors.
    found: dict[str, float] = answer(
        *(*words, "--child", engine, microbatches, remat), TF_ENABLE_ONEDNN_OPTS="1"
    )
    return found


def transformer(args: argparse.Namespace) -> Any:
    import keras
    from keras import layers

    given = keras.Input((args.length, args.width))
    hidden = given
    for _ in range(args.blocks):
        normal = layers.LayerNormalization()(hidden)
        hidden += layers.MultiHeadAttention(4, args.width // 4)(normal, normal)
        normal = layers.LayerNormalization()(hidden)
        hidden += layers.Dense(args.width)(layers.Dense(4 * args.width, "gelu")(normal))
    return keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling1D()(hidden)))


def measure(
    args: argparse.Namespace, engine: str, microbatches: int, remat: bool
) -> dict[str, float]:
    """MB of the plan, and of some steps."""
    import keras
    import tensorflow as tf

    import stagecraft as sc

    sc.virtual_devices(args.stages)
    given = {"strategy": "grid", "stages": args.stages, "microbatches": microbatches}
    given |= {"remat": remat}
    schedule = {"microbatch_schedule": "1f1b"} if engine == "Trainer" else {}
    plan = sc.plan(lambda: transformer(args), sc.Parallel(**given, **schedule),
                   batch_size=args.batch, optimizer="adam")  # fmt: skip
    predicted = sum(stage.memory_bytes for stage in plan.stages)
    own = sorted(stage.pass_bytes for stage in plan.stages)
    at_once = 1 if microbatches == 1 else min(args.stages, os.cpu_count() or 1)
    predicted -= sum(own[:-at_once])  # of passes that wait for a core
    predicted /= 1e6

    rng = np.random.default_rng(0)
    x = rng.standard_normal((args.batch, args.length, args.width), np.float32)
    y = rng.integers(10, size=args.batch)
    if engine == "Trainer":
        step = trainer_step(args, sc.Parallel(**given, **schedule), x, y)
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        training = sc.engine(
            transformer(args), loss=loss, optimizer="adam", parallel=sc.Parallel(**given)
        )

        def step() -> None:
            training.train_step((x, y))

    step()  # traces
    gc.collect()
    tf.config.experimental.reset_memory_stats("CPU:0")  # which counts for all logical CPUs
    for _ in range(STEPS):
        step()
    measured = tf.config.experimental.get_memory_info("CPU:0")["peak"] / 1e6
    return {"predicted": predicted, "measured": measured}


def trainer_step(args: argparse.Namespace, parallel: Any, x: Any, y: Any) -> Any:
    from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

    settings = TrainingSettings(
        train=TrainSettings(batch_size=args.batch, optimizer="adam"), parallel=parallel
    )

    def build(scope: Any) -> Any:
        with scope:
            return transformer(args)

    engine = engine_for(settings, steps=100, build=build)
    batches = engine.feed(repeated(x, y))
    return lambda: engine.train(batches, 1)


if __name__ == "__main__":
    main()
