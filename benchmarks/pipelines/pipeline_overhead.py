"""Compares the time outside training of Stagecraft with that of a standard TFX pipeline.

    python benchmarks/pipelines/pipeline_overhead.py ARCHIVE_FOLDER [--rounds 1] [--steps 391]
                                                     [--min-accuracy 0.1]

ARCHIVE_FOLDER holds cifar-10-python.tar.gz and cifar-10-binary.tar.gz. Both pipelines train the
same CNN for the same steps of 128 examples on the same images. Rounds alternate. The standard
pipeline (``stock/``) follows the TFX examples: PNG in TFRecords, ImportExampleGen, map_fn decode,
materialized Transform, Keras ``fit``, one metric. The time does not include writing the PNGs.
Seconds are per component, from ML Metadata (standard) and ``--json`` (Stagecraft), so they do not
include imports.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import statistics
import sys
import tempfile
from importlib.metadata import version

import psutil

from common import call, figures, options, stagecraft

STOCK = pathlib.Path(__file__).resolve().parent / "stock" / "stock_pipeline.py"
SIDES = {"ours": "Stagecraft", "stock": "standard TFX"}
"""Name of a side: that in the figures."""


def main() -> None:
    parser = options(__doc__, rounds=1, steps=391)
    parser.add_argument("archives", type=pathlib.Path)
    parser.add_argument(
        "--min-accuracy", type=float, default=0.1, help="threshold for pushing, on both sides"
    )
    parser.add_argument("--only", choices=["ours", "stock"], help="run only one side")
    args = parser.parse_args()

    sides = {"stock": run_stock, "ours": run_ours}
    if args.only:
        sides = {args.only: sides[args.only]}
    runs: dict[str, list[dict]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as scratch:
        pngs = pathlib.Path(scratch) / "png"
        if "stock" in sides:
            call([sys.executable, STOCK, "prepare", args.archives, pngs])
        for number in range(args.rounds):
            for side, run in sides.items():
                output = pathlib.Path(scratch) / f"{side}-{number}"
                runs[side].append(run(args, pngs, output))

    print(
        f"TFX {version('tfx')}, Python {platform.python_version()}, {psutil.cpu_count()} cores, "
        f"{args.steps} steps of 128, {args.rounds} rounds"
    )
    for side, results in runs.items():
        for result in results:
            components = ", ".join(f"{k} {v:.1f}" for k, v in result["components"].items())
            print(
                f"{side}: outside the Trainer {result['outside']:.1f} s, Trainer "
                f"{result['trainer']:.1f} s, peak {result['peak_mb']:,.0f} MB ({components})"
            )
    main_figures = {
        f"{SIDES[side]}: {name}": statistics.median(result[key] for result in results)
        for side, results in runs.items()
        for name, key in (("seconds outside the Trainer", "outside"), ("peak MB", "peak_mb"))
    }
    if len(runs) == 2:
        ratios = [
            ours["outside"] / stock["outside"]
            for ours, stock in zip(runs["ours"], runs["stock"], strict=True)
        ]
        print(
            f"outside the Trainer, ours / stock: {statistics.median(ratios):.3f} "
            f"({', '.join(f'{ratio:.3f}' for ratio in ratios)})"
        )
        main_figures["seconds outside the Trainer, Stagecraft / standard TFX"] = statistics.median(
            ratios
        )
    figures(lower=main_figures)


def run_stock(args: argparse.Namespace, pngs: pathlib.Path, output: pathlib.Path) -> dict:
    output.mkdir()
    return timed([sys.executable, STOCK, "run", pngs, output, args.steps, args.min_accuracy])


def run_ours(args: argparse.Namespace, pngs: pathlib.Path, output: pathlib.Path) -> dict:
    settings = {
        "train.steps": args.steps,
        "train.batch_size": 128,
        "train.optimizer": "sgd",
        "train.learning_rate": 0.05,
        "train.schedule": "constant",
        "train.augment": "none",
        "evaluate.min_accuracy": args.min_accuracy,
        "evaluate.better_than_constant": "false",
    }
    archive = args.archives / "cifar-10-binary.tar.gz"
    words = ("run", "--json", "--data", archive, "--output", output)
    return timed(stagecraft(*words, settings=settings))


def timed(command: list) -> dict:
    """Runs a command, and parses its last line of output: JSON with ``components``."""
    peak = 0

    def sample(process: psutil.Process) -> None:
        nonlocal peak
        peak = max(peak, memory(process))

    output = call(command, sample)
    result = json.loads(output.splitlines()[-1])
    seconds = {
        name: value["seconds"] if isinstance(value, dict) else value
        for name, value in result["components"].items()
    }
    if not result["pushed"]:
        sys.exit(f"{command}: the model was not pushed")
    return {
        "components": seconds,
        "trainer": seconds["Trainer"],
        "outside": sum(seconds.values()) - seconds["Trainer"],
        "peak_mb": peak / 1e6,
    }


def memory(process: psutil.Process) -> int:
    """Returns the resident bytes of a process and its descendants."""
    total = 0
    try:
        for each in (process, *process.children(recursive=True)):
            total += each.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total


if __name__ == "__main__":
    main()
