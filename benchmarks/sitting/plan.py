"""The benchmarks of a sitting, in order, with their words and needs: archives of CIFAR-10, Java.

A sitting of all of them should end within about 90 minutes on two idle cores. So most have fewer
rounds than a script's default, ``soak`` has 6 cycles of 50, and ``drill`` 4 scenarios of 15.
"""

from __future__ import annotations

import pathlib
import shutil
from typing import NamedTuple

BINARY, PYTHON = "cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"
VARIABLE = "STAGECRAFT_CIFAR10"


class Benchmark(NamedTuple):
    """A section of the results."""

    script: str
    """File in ``benchmarks/``, without ``.py``."""
    title: str
    minutes: float
    """Limit of a run: the sitting ends a run that takes longer."""
    runs: tuple[str, ...] = ("",)
    """Words of the script. {binary} is the binary archive of CIFAR-10, {archives} the folder with
    both archives."""
    java: bool = False
    """Whether it needs Java."""
    alias: str = ""
    """Name, if it is not that of the file."""

    @property
    def name(self) -> str:
        """Of ``--only`` and of ``remarks/GROUP/NAME.md``."""
        return self.alias or self.script.rpartition("/")[2]

    @property
    def group(self) -> str:
        """The folder of the script."""
        return self.script.partition("/")[0]

    @property
    def archives(self) -> tuple[str, ...]:
        """The archives of CIFAR-10 that it needs."""
        words = " ".join(self.runs)
        python = (PYTHON,) if "{archives}" in words else ()
        return (BINARY, *python) if python or "{binary}" in words else ()

    def missing(self, folder: pathlib.Path | None) -> str:
        """Says what the benchmark lacks, and how to name it; empty: nothing.

        Args:
            folder: with the archives; None: nobody named one.
        """
        for name in self.archives:
            if folder is None or not (folder / name).is_file():
                other = "both archives" if name == PYTHON else "the archive"
                return f"{name} is missing: name the folder with {other} by --archive or {VARIABLE}"
        if self.java and shutil.which("java") is None:
            return "Java is missing: Flink needs Java 11"
        return ""


PLAN = (
    Benchmark(
        "engine/fit",
        "The library against Keras fit",
        15,
        (
            "--rounds 5",
            "--rounds 5 --model cnn --batch 16",
        ),
    ),
    Benchmark(
        "engine/training_loop", "Training loop against Keras fit", 20, ("--rounds 5 --steps 20",)
    ),
    Benchmark(
        "engine/first_step",
        "Time to the first step",
        50,
        ("--rounds 2",),
    ),
    Benchmark("engine/workers", "Two workers", 10),
    Benchmark("engine/stages", "Two stages with real computation", 30, ("--rounds 7",)),
    Benchmark("engine/overlap", "Overlap of microbatches", 15, ("--rounds 3",)),
    Benchmark(
        "engine/overlap",
        "Overlap of virtual stages",
        15,
        (
            "--stages 2 --stages 4 --microbatches 4 --microbatches 8 --virtual-stages 1 "
            "--virtual-stages 2 --rounds 3 --forward-ms 40 --backward-ms 80",
        ),
        alias="virtual_stages",
    ),
    Benchmark("engine/remat", "Activation recomputation", 15, ("--schedule gpipe",)),
    Benchmark("engine/shards", "Memory and time of shards", 10),
    Benchmark("planning/planner", "The planner against measured stages", 25, ("--rounds 5",)),
    Benchmark("planning/planner_papers", "The cost model against papers", 5),
    Benchmark("planning/memory", "The memory that a plan predicts", 15),
    Benchmark("planning/search", "The search for a topology", 15),
    Benchmark("planning/auto", "The topology that the search takes", 45, ("--rounds 2",)),
    Benchmark(
        "planning/auto",
        "The topology that the search takes on this machine",
        15,
        ("--here cnn --here resnet20 --rounds 7",),
        alias="auto_here",
    ),
    Benchmark("pipelines/step_start", "The start of a step", 10, ("--rounds 3",)),
    Benchmark(
        "pipelines/pipeline_overhead",
        "Pipeline time outside the Trainer",
        30,
        ("{archives} --steps 100 --rounds 3",),
    ),
    Benchmark("pipelines/input_data", "Input pipeline", 10, ("{binary} --rounds 5 --seconds 1.5",)),
    Benchmark(
        "pipelines/recipe",
        "Pieces of the fast recipe",
        30,
        ("{binary} --seeds 1 --epochs 1 --variant sgd --variant float32",),
    ),
    Benchmark("pipelines/taxi", "The taxi template", 25, ("--seeds 2",)),
    Benchmark(
        "pipelines/data_size",
        "More data on Flink",
        20,
        ("--examples 4000 --sizes 1,8 --heap 700m",),
        java=True,
    ),
    Benchmark("robustness/checkpoints", "Checkpoints during training", 10),
    Benchmark(
        "robustness/drill",
        "Fault injection",
        15,
        (
            "--scenario worker-killed --scenario worker-frozen --scenario preempted "
            "--scenario checkpoint-truncated",
        ),
    ),
    Benchmark("robustness/soak", "Killed training runs", 15, ("--cycles 6",)),
)


class NoArchive(ValueError):
    """A path without an archive of CIFAR-10."""

    def __init__(self, value: str):
        super().__init__(f"{value} is no folder with {BINARY}")
        self.value = value


def folder_of_archives(given: str | None) -> pathlib.Path | None:
    """The folder with the archives.

    Args:
        given: the folder, or the binary archive; empty or None: nobody named one.

    Raises:
        NoArchive: there is no binary archive.
    """
    if not given:
        return None
    path = pathlib.Path(given).expanduser().resolve()
    folder = path.parent if path.name == BINARY else path
    if not (folder / BINARY).is_file():
        raise NoArchive(given)
    return folder


def placeholders(folder: pathlib.Path | None) -> dict[str, str]:
    """Values of the placeholders in a benchmark's words."""
    return {} if folder is None else {"archives": str(folder), "binary": str(folder / BINARY)}
