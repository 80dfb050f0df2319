"""Measures the speed-up of two workers over one, with one thread per worker.

    python benchmarks/workers.py [--model resnet20] [--workers 2] [--rounds 10]
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
import functools
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import Any

CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--strategy", default="multi_worker_mirrored")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3, help="steps per round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--child", nargs=2, type=int, metavar=("N", "B"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        serve(args, *args.child)
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
    children = {name: start(args, *side) for name, side in sides.items()}
    try:
        for child in children.values():  # one by one: tracing and the first steps are slow
            ask(child)
        rounds = [
            {name: ask(child) for name, child in children.items()} for _ in range(args.rounds)
        ]
    finally:
        for child in children.values():
            for process in child:
                process.kill()
    rates = [
        {name: args.steps * sides[name][1] / seconds for name, seconds in times.items()}
        for times in rounds
    ]
    for name, (workers, batch) in sides.items():
        rate = statistics.median(each[name] for each in rates)
        ratios = [each[name] / each["one worker"] for each in rates]
        told = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name:10}  {workers:7}  {batch:5}  {rate:8.1f}  {told}", flush=True)


def start(args: argparse.Namespace, workers: int, batch: int) -> list[Any]:
    """Starts the processes of a side."""
    from stagecraft.trainer_module.parallel.roles import roles

    command = [
        *(sys.executable, __file__, "--model", args.model, "--strategy", args.strategy),
        *("--steps", str(args.steps), "--child", str(workers), str(batch)),
    ]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return [
        subprocess.Popen(
            command,
            env=environment | ({"TF_CONFIG": role.tf_config} if role.tf_config else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for role in roles(parallel(args.strategy, workers))
    ]


def parallel(strategy: str, workers: int) -> Any:
    from stagecraft.trainer_module.settings import ParallelSettings

    return ParallelSettings(strategy=strategy, workers=workers, virtual_devices=1)


def ask(child: list[Any]) -> float:
    """Returns the seconds of the slowest worker for the steps of a round."""
    for process in child:
        process.stdin.write("steps\n")
        process.stdin.flush()
    slowest = 0.0
    for process in child:
        while not (line := process.stdout.readline()).startswith("seconds "):
            if not line:
                raise SystemExit("a process died; see above")
        slowest = max(slowest, float(line.split()[1]))
    return slowest


def serve(args: argparse.Namespace, workers: int, size: int) -> None:
    """Takes steps for each line on stdin."""
    import numpy as np
    import tensorflow as tf

    from stagecraft.trainer_module.data.input_data import Batch
    from stagecraft.trainer_module.engines.factory import connect, make_engine
    from stagecraft.trainer_module.models.assemble import assemble
    from stagecraft.trainer_module.parallel import topology
    from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1 if workers == 1 else 2)
    settings = TrainingSettings(
        train=TrainSettings(model=args.model, batch_size=size, schedule="constant"),
        parallel=parallel(args.strategy, workers),
    )
    devices = topology.resolve(settings.parallel)
    engine = make_engine(
        connect(devices, settings.parallel),
        devices,
        settings,
        1000,
        functools.partial(assemble, settings.train, CLASSES),
    )
    own = size // workers
    rng = np.random.default_rng(devices.worker)
    images = rng.standard_normal((own, 32, 32, 3), np.float32)
    labels = rng.integers(CLASSES, size=own)
    batch = Batch(images, labels, np.ones(own, np.float32))
    batches = engine.feed(tf.data.Dataset.from_tensors(batch).repeat())
    for number, _ in enumerate(sys.stdin):
        if not number:
            engine.train(batches, 2)
        begun = time.perf_counter()
        engine.train(batches, args.steps)
        print(f"seconds {time.perf_counter() - begun}", flush=True)


if __name__ == "__main__":
    main()
