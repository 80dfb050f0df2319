"""Runs the data steps on more and more data, on Flink with a fixed heap and on Beam in Python.

    python benchmarks/pipelines/data_size.py [--examples 5000] [--sizes 1,4,8] [--engine flink]

Each size is one run up to Transform, which writes the transformed examples. Seconds are those of
the components, without imports. Memory is the peak of the process that runs the steps and Flink's
workers (LOOPBACK), and that of Flink. Flink needs Java 11. Its job server is in the folder that
STAGECRAFT_FLINK names, or in ../shared/flink; without such a folder, Beam downloads it.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import tempfile
from typing import NamedTuple

import psutil

from common import call, figures, stagecraft, versions

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = ("Cifar10ExampleGen", "StatisticsGen", "Transform")


class Outcome(NamedTuple):
    """What a run took."""

    examples: int
    seconds: dict[str, float]
    worker_mb: float
    java_mb: float

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=5000, help="of size 1")
    parser.add_argument("--sizes", default="1,4,8")
    parser.add_argument("--heap", default="1500m", help="of Flink")
    parser.add_argument("--engine", action="append", choices=["direct", "flink"])
    args = parser.parse_args()

    print(f"{versions()}, load {os.getloadavg()[0]:.1f}, Flink's heap {args.heap}")
    found = {}
    for engine in args.engine or ("direct", "flink"):
        outcomes = []
        for size in map(int, args.sizes.split(",")):
            outcome = run(engine, args.examples * size, args.heap)
            outcomes.append(outcome)
            steps = ", ".join(f"{name} {each:.1f} s" for name, each in outcome.seconds.items())
            print(
                f"{engine} {size}x: {outcome.examples:,} examples, {outcome.total:.1f} s "
                f"({steps}), worker {outcome.worker_mb:,.0f} MB, Java {outcome.java_mb:,.0f} MB",
                flush=True,
            )
        first, last = outcomes[0], outcomes[-1]
        each = last.total / last.examples
        found[f"{engine}, {last.examples:,} examples: ms per example"] = 1e3 * each
        found[f"{engine}, {last.examples:,} examples: MB of the workers"] = last.worker_mb
        print(f"{engine}: {1e3 * each:.2f} ms per example of the largest size")
        if last.examples > first.examples:
            more = (last.total - first.total) / (last.examples - first.examples)
            print(f"{engine}: {1e3 * more:.2f} ms per additional example")
    figures(lower=found)


def run(engine: str, examples: int, heap: str) -> Outcome:
    """Runs the data steps in a new folder."""
    test = examples // 10
    settings = {
        "data.sample_train": examples - test,
        "data.sample_test": test,
        "data.shards": 4,
        "transform.materialize": "true",
        "beam.runner": engine,
    }
    if engine == "flink":
        settings["beam.args"] = json.dumps(arguments(heap))
    peaks = {False: 0, True: 0}  # of other processes, and of Java

    def sample(process: psutil.Process) -> None:
        for resident, is_java in memory(process):
            peaks[is_java] = max(peaks[is_java], resident)

    with tempfile.TemporaryDirectory() as scratch:
        words = ("run", "--json", "--output", f"{scratch}/out", "--to", "Transform")
        output = call(stagecraft(*words, settings=settings), sample)
    result = json.loads(output.splitlines()[-1])
    seconds = {name: result["components"][name]["seconds"] for name in STEPS}
    return Outcome(examples, seconds, peaks[False] / 1e6, peaks[True] / 1e6)


def arguments(heap: str) -> list[str]:
    """Beam's, for Flink in the job server of the run."""
    folder = pathlib.Path(os.environ.get("STAGECRAFT_FLINK") or ROOT.parent / "shared" / "flink")
    jar = folder / "flink-job-server.jar"
    given = [f"--flink_job_server_jar={jar}"] if jar.exists() else []
    heap = f"--job_server_jvm_properties=-Xmx{heap}"
    return ["--flink_master=[local]", "--parallelism=2", heap, *given]


def memory(process: psutil.Process) -> list[tuple[int, bool]]:
    """Resident bytes of each descendant, and whether it is Java."""
    found = []
    for each in process.children(recursive=True):
        try:
            found.append((each.memory_info().rss, each.name() == "java"))
        except psutil.NoSuchProcess:
            continue
    return found


if __name__ == "__main__":
    main()
