"""Measures the speed-up of two workers over one, with one thread per worker.

    python benchmarks/engine/workers.py [--model resnet20] [--workers 2] [--rounds 10]
                                        [--strategy multi_worker_mirrored]

Each side runs in its own processes, which sleep while another side computes. All kernels have one
thread. Sides:

    one worker   a batch of 128
    strong       the workers share a batch of 128 (strong scaling)
    weak         each worker has a batch of 128 (weak scaling)

In each round, every side takes some steps. Ratios compare images per second of the same round.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from typing import Any

from common import engine_for, figures, noise, options, serve, spread, start, take_turns


def main() -> None:
    parser = options(
        __doc__, model="resnet20", strategy="multi_worker_mirrored", workers=2, batch=128, rounds=10
    )
    parser.add_argument("--steps", type=int, default=3, help="steps per round")
    parser.add_argument("--child", nargs=2, type=int, metavar=("N", "B"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        work(args, *args.child)
        return
    print(
        f"{args.model}, {args.strategy}, Python {platform.python_version()}, {os.cpu_count()} "
        f"cores; medians of {args.rounds} rounds of {args.steps} steps, with the range"
    )
    print("side        workers  batch  images/s  to one worker")
    sides = {
        "one worker": (1, args.batch),
        "strong": (args.workers, args.batch),
        "weak": (args.workers, args.batch * args.workers),
    }
    processes = {name: start_side(args, *side) for name, side in sides.items()}
    rounds = take_turns(processes, args.rounds)
    rates = [
        {name: args.steps * sides[name][1] / seconds for name, seconds in times.items()}
        for times in rounds
    ]
    found = {}
    for name, (workers, batch) in sides.items():
        rate = statistics.median(each[name] for each in rates)
        ratios = [each[name] / each["one worker"] for each in rates]
        print(f"{name:10}  {workers:7}  {batch:5}  {rate:8.1f}  {spread(ratios)}", flush=True)
        found[f"{name} scaling: speed-up over one worker"] = statistics.median(ratios)
    del found["one worker scaling: speed-up over one worker"]
    figures(higher=found)


def start_side(args: argparse.Namespace, workers: int, batch: int) -> list[Any]:
    """Starts the processes of a side."""
    from stagecraft.trainer_module.parallel.cluster import roles

    words = ("--model", args.model, "--strategy", args.strategy, "--steps", args.steps)
    return [
        start(
            *(*words, "--child", workers, batch),
            **({"TF_CONFIG": role.tf_config} if role.tf_config else {}),
        )
        for role in roles(parallel(args.strategy, workers))
    ]


def parallel(strategy: str, workers: int) -> Any:
    from stagecraft.trainer_module.settings import ParallelSettings

    return ParallelSettings(strategy=strategy, workers=workers, virtual_devices=1)


def work(args: argparse.Namespace, workers: int, size: int) -> None:
    """A process of a side: takes steps for each line on standard input."""
    import tensorflow as tf

    from stagecraft.trainer_module.parallel import topology
    from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1 if workers == 1 else 2)
    settings = TrainingSettings(
        train=TrainSettings(model=args.model, batch_size=size, schedule="constant"),
        parallel=parallel(args.strategy, workers),
    )
    engine = engine_for(settings)
    seed = topology.resolve(settings.parallel).worker
    serve(engine, noise(size // workers, seed), args.steps)


if __name__ == "__main__":
    main()
