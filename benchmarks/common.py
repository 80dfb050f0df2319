"""What several benchmarks need: versions, times, batches, engines and other processes.

Python searches the folder of the script that it runs, so each group of benchmarks has a link to
this file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

CLASSES = 10
ARGUMENTS = {"input_shape": (32, 32, 3), "num_classes": CLASSES}
"""Of the functions that build models."""


def options(doc: str, **defaults: object) -> argparse.ArgumentParser:
    """A parser of the command line, with options that have defaults, and their types."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser


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


def repeated(inputs: Any, labels: Any) -> Any:
    """A dataset that repeats one batch, whose examples all count."""
    import numpy as np
    import tensorflow as tf

    from stagecraft.trainer_module.data.batch import Batch

    batch = Batch(inputs, labels, np.ones(len(labels), np.float32))
    return tf.data.Dataset.from_tensors(batch).repeat()


def noise(size: int, seed: int = 0) -> Any:
    """A dataset that repeats one batch of random images and labels."""
    import numpy as np

    rng = np.random.default_rng(seed)
    images = rng.standard_normal((size, *ARGUMENTS["input_shape"]), np.float32)
    return repeated(images, rng.integers(CLASSES, size=size))


def engine_for(
    settings: Any, *, steps: int = 1000, build: Callable[[Any], Any] | None = None
) -> Any:
    """The engine of a training.

    Args:
        build: makes the model in the scope that it takes; None: ``train.model``, of images.
    """
    import functools

    from stagecraft.trainer_module.engines.factory import connect, make_engine
    from stagecraft.trainer_module.models.assemble import assemble
    from stagecraft.trainer_module.parallel import topology

    devices = topology.resolve(settings.parallel)
    build = build or functools.partial(assemble, settings.train, ARGUMENTS)
    return make_engine(connect(devices, settings.parallel), devices, settings, steps, build)


def start(*words: object, **variables: str) -> subprocess.Popen[str]:
    """Starts this script again, in a new process with other arguments.

    Args:
        variables: of the environment; by default, TensorFlow logs errors only.
    """
    return subprocess.Popen(
        [sys.executable, sys.argv[0], *map(str, words)],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(*words: object, **variables: str) -> Any:
    """The JSON in the last line of a process of :func:`start`."""
    process = start(*words, **variables)
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit("a process failed; see above")
    return json.loads(output.splitlines()[-1])


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


def stagecraft(*words: object, settings: Mapping[str, object]) -> list[str]:
    """A command line of ``stagecraft``.

    Args:
        settings: values by dotted name, for ``--set``.
    """
    program = pathlib.Path(sys.executable).parent / "stagecraft"
    overrides = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return [*map(str, (program, *words)), *overrides]


def call(
    command: Sequence[object], sample: Callable[[psutil.Process], None] | None = None, **more: Any
) -> str:
    """Runs a command to its end, and returns its output.

    Args:
        sample: takes the process five times a second.
        more: arguments of ``subprocess.Popen``.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = psutil.Popen([*map(str, command)], stdout=out, stderr=err, **more)
        while process.poll() is None:
            if sample is not None:
                sample(process)
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(timeout=0.2)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            sys.exit(f"{command} ended with {process.returncode}:\n{err.read()[-3000:]}")
        return out.read()
