"""Measures the speed-up of two stages over one device, with one thread per device.

    python benchmarks/engine/stages.py [--model resnet56] [--stages 2] [--rounds 10]
                                       [--jit off --jit on]

Each side runs in its own process, which sleeps while another side computes. All kernels have one
thread. Sides:

    one device   the whole model on one device, kernels one after the other
    naive        the stages one after the other: one microbatch
    M = 4, 8     the stages at the same time, with M microbatches

In each round, every side takes a step. Ratios compare steps of the same round.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics

from common import engine_for, figures, noise, options, serve, spread, start, take_turns

MICROBATCHES = (4, 8)


def main() -> None:
    parser = options(__doc__, model="resnet56", stages=2, batch=128, rounds=10, schedule="1f1b")
    parser.add_argument("--jit", choices=("off", "on"), action="append", help="default: both")
    parser.add_argument("--child", nargs=2, type=int, metavar=("K", "M"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        work(args, *args.child)
        return
    print(
        f"{args.model}, {args.stages} stages, {args.batch} examples a step, {args.schedule}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores; medians of {args.rounds} "
        "rounds, with the range"
    )
    print("jit  side        images/s  to one device        to naive")
    found = {}
    for jit in args.jit or ["off", "on"]:
        found |= compare(args, jit)
    figures(higher=found)


def compare(args: argparse.Namespace, jit: str) -> dict[str, float]:
    """Starts all sides, alternates their steps, and prints their rows.

    Returns:
        speed-ups over one device, by name.
    """
    sides = {"one device": (1, 1), "naive": (args.stages, 1)}
    sides |= {f"M = {m}": (args.stages, m) for m in MICROBATCHES}
    words = ("--model", args.model, "--batch", args.batch, "--schedule", args.schedule)
    words = (*words, "--jit", jit, "--child")
    rounds = take_turns({name: [start(*words, *grid)] for name, grid in sides.items()}, args.rounds)
    found = {}
    for name, (_, microbatches) in sides.items():
        rate = args.batch / statistics.median(times[name] for times in rounds)
        to_one, to_naive = (
            [times[other] / times[name] for times in rounds] for other in ("one device", "naive")
        )
        print(
            f"{jit:3}  {name:10}  {rate:8.1f}  {spread(to_one):19}  {spread(to_naive)}", flush=True
        )
        if microbatches > 1:
            found[f"XLA {jit}, {name}: speed-up over one device"] = statistics.median(to_one)
    return found


def work(args: argparse.Namespace, stages: int, microbatches: int) -> None:
    """A process of a side: takes a step for each line on standard input."""
    import tensorflow as tf

    from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

    tf.config.threading.set_intra_op_parallelism_threads(1)
    if stages == 1:
        tf.config.threading.set_inter_op_parallelism_threads(1)
    settings = TrainingSettings(
        train=TrainSettings(model=args.model, batch_size=args.batch, schedule="constant"),
        parallel=ParallelSettings(
            strategy="grid",
            stages=stages,
            microbatches=microbatches,
            microbatch_schedule=args.schedule,
            jit=args.jit == ["on"],
            virtual_devices=stages,
        ),
    )
    serve(engine_for(settings), noise(args.batch))


if __name__ == "__main__":
    main()
