"""What several benchmarks need: versions, times, and batches of noise.

Python searches the folder of the script that it runs, so each group of benchmarks has a link to
this file.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

CLASSES = 10
ARGUMENTS = {"input_shape": (32, 32, 3), "num_classes": CLASSES}
"""Of the functions that build models."""


def versions() -> str:
    """Versions and cores, for the first line of the output."""
    import keras
    import tensorflow as tf

    return (
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, Python "
        f"{platform.python_version()}, {psutil.cpu_count()} cores"
    )


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """The median and the range."""
    median = statistics.median(values)
    return f"{median:{form}} ({min(values):{form}} to {max(values):{form}})"


def figures(
    *, higher: Mapping[str, float] | None = None, lower: Mapping[str, float] | None = None
) -> None:
    """Prints the main figures, which ``benchmarks/run.py`` keeps and compares: the last line.

    Args:
        higher: value of each figure that is better if it is higher; the name has the unit.
        lower: the same of those that are better if they are lower.

    Raises:
        ValueError: a value is not finite.
    """
    found = {
        name: {"value": float(f"{value:.4g}"), "better": better}
        for better, values in (("higher", higher or {}), ("lower", lower or {}))
        for name, value in values.items()
    }
    print(f"figures: {json.dumps(found, ensure_ascii=False, allow_nan=False)}", flush=True)


def timed(work: Callable[[], object]) -> float:
    """Seconds that some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def noise(size: int, seed: int = 0) -> Any:
    """A dataset that repeats one batch of random images and labels."""
    import numpy as np
    import tensorflow as tf

    from stagecraft.trainer_module.data.batch import Batch

    rng = np.random.default_rng(seed)
    images = rng.standard_normal((size, 32, 32, 3), np.float32)
    labels = rng.integers(CLASSES, size=size)
    batch = Batch(images, labels, np.ones(size, np.float32))
    return tf.data.Dataset.from_tensors(batch).repeat()


def engine_for(settings: Any, *, steps: int = 1000) -> Any:
    """The engine of a training."""
    import functools

    from stagecraft.trainer_module.engines.factory import connect, make_engine
    from stagecraft.trainer_module.models.assemble import assemble
    from stagecraft.trainer_module.parallel import topology

    devices = topology.resolve(settings.parallel)
    build = functools.partial(assemble, settings.train, ARGUMENTS)
    return make_engine(connect(devices, settings.parallel), devices, settings, steps, build)


def ask(processes: Sequence[Any]) -> float:
    """Lets the processes of a side work once; returns the seconds of the slowest.

    Each process runs :func:`serve`.
    """
    for process in processes:
        process.stdin.write("work\n")
        process.stdin.flush()
    slowest = 0.0
    for process in processes:
        while not (line := process.stdout.readline()).startswith("seconds "):
            if not line:
                raise SystemExit("a process died; see above")
        slowest = max(slowest, float(line.split()[1]))
    return slowest


def serve(engine: Any, data: Any, steps: int = 1) -> None:
    """Trains some steps for each line on standard input, and prints the seconds."""
    batches = engine.feed(data)
    for number, _ in enumerate(sys.stdin):
        if not number:
            engine.train(batches, 2)
        print(f"seconds {timed(lambda: engine.train(batches, steps))}", flush=True)


def take_turns(sides: dict[str, Sequence[Any]], rounds: int) -> list[dict[str, float]]:
    """Seconds of each side in each round; ends the processes."""
    try:
        for processes in sides.values():  # one by one: tracing and the first steps take long
            ask(processes)
        return [{name: ask(processes) for name, processes in sides.items()} for _ in range(rounds)]
    finally:
        for processes in sides.values():
            for process in processes:
                process.kill()
