"""Measures how much memory parallel.remat saves, and whether it changes numbers.

    python benchmarks/engine/remat.py [--model resnet56] [--batch 128]
                                      [--microbatches 1 --microbatches 4] [--schedule 1f1b]

Two stages run on two logical CPUs, remat off and on, each in its own process: three steps of SGD on
noise. The benchmark measures resident sets. The largest of a step is VmHWM, which it resets through
/proc/self/clear_refs (Linux 4.0). glibc returns blocks of 64 kB and more at once, because its pools
would blur the measurement. Columns:

    graph     before step 2, above the level before step 1: the optimized graph that TensorFlow
              keeps on the host
    step      largest in steps 2 and 3, above the level before each of them: activations, gradients;
              little, if the process keeps the memory of step 1, which then is in "graph"
    together  largest in all steps, above the level before step 1, after tracing

The benchmark compares all numbers after step 1, bit by bit: weights, moving statistics, and
optimizer slots, which are then the gradients times the learning rate. A dropout layer before the
last layer makes random draws a part of the recomputation.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import pathlib
import tempfile
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from common import ARGUMENTS, answer, engine_for, figures, noise, options

STEPS = 3


def main() -> None:
    parser = options(__doc__, model="resnet56", batch=128)
    parser.add_argument("--microbatches", type=int, action="append", help="default: 1 and 4")
    parser.add_argument("--schedule", default="1f1b", help="or gpipe")
    parser.add_argument("--child", nargs=2, metavar=("on|off", "NPZ"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    counts = args.microbatches or [1, 4]
    if args.child:
        remat, out = args.child
        print(json.dumps(measure(args, counts[0], remat == "on", out)))
        return
    print(f"{args.model}, two stages, {args.batch} examples a step, {args.schedule}")
    print("microbatches  remat  graph MB  step MB  together MB")
    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            off, on = (run(args, count, remat, folder) for remat in ("off", "on"))
            less = {key: 1 - on[key] / off[key] for key in ("step", "together")}
            one, two = (np.load(found["out"]) for found in (off, on))
            unequal = [name for name in one.files if one[name].tobytes() != two[name].tobytes()]
            print(
                f"{'less':>19}  {'':8}  {less['step']:7.0%}  {less['together']:11.0%}  "
                f"{len(unequal)} of {len(one.files)} arrays differ" + worst(one, two, unequal)
            )
            name = f"{args.schedule}, M = {count}: memory of three steps, with / without remat"
            shares[name] = on["together"] / off["together"]
    figures(lower=shares)


def run(args: argparse.Namespace, microbatches: int, remat: str, folder: str) -> dict[str, Any]:
    """Measures in a new process, and prints the row."""
    out = os.path.join(folder, f"{microbatches}-{remat}.npz")
    found: dict[str, Any] = answer(
        *("--model", args.model, "--batch", args.batch, "--schedule", args.schedule),
        *("--microbatches", microbatches, "--child", remat, out),
        MALLOC_MMAP_THRESHOLD_="65536",
    )
    found["out"] = out
    print(
        f"{microbatches:12}  {remat:>5}  {found['graph']:8.0f}  {found['step']:7.0f}  "
        f"{found['together']:11.0f}",
        flush=True,
    )
    return found


def worst(one: Any, two: Any, unequal: list[str]) -> str:
    """Returns the largest difference, relative to the largest entry of its array."""
    if not unequal:
        return ""
    by = {name: np.abs(one[name] - two[name]).max() / np.abs(one[name]).max() for name in unequal}
    name = max(by, key=lambda name: by[name])
    return f", at most by {by[name]:.1e} of the largest entry ({name})"


def measure(args: argparse.Namespace, microbatches: int, remat: bool, out: str) -> dict[str, float]:
    """Takes three steps, saves the numbers after the first to ``out``, and returns MB as above."""
    import keras
    import tensorflow as tf

    from stagecraft.trainer_module.models.assemble import assemble
    from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

    settings = TrainingSettings(
        train=TrainSettings(model=args.model, batch_size=args.batch, schedule="constant"),
        parallel=ParallelSettings(
            strategy="grid",
            stages=2,
            microbatches=microbatches,
            microbatch_schedule=args.schedule,
            remat=remat,
            virtual_devices=2,
        ),
    )

    def build(scope: AbstractContextManager[Any]) -> keras.Model:
        plain = assemble(settings.train, ARGUMENTS, scope)
        *_, before, last = plain.layers
        dropped = keras.layers.Dropout(0.3)(before.output)
        return keras.Model(plain.inputs, last(dropped))

    engine = engine_for(settings, steps=STEPS, build=build)
    batches = engine.feed(noise(args.batch))
    # Traced first: Python does not release the memory of tracing at once.
    engine._train_graph.get_concrete_function(batches, tf.constant(1, tf.int64))

    levels, peaks = [], []
    for step in range(STEPS):
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        levels.append(status("VmRSS"))
        engine.train(batches, 1)
        peaks.append(status("VmHWM"))
        if step == 0:
            np.savez(out, **engine.state())
    above = [peak - level for peak, level in zip(peaks, levels, strict=True)]
    return {
        "graph": levels[1] - levels[0],
        "step": max(above[1:]),
        "together": max(peaks) - levels[0],
    }


def status(field: str) -> float:
    """Returns MB of this process."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return int(values[field].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main()
