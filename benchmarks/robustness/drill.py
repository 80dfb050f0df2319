"""Injects faults into training runs, and tells how long they take to detect them and to recover.

    python benchmarks/robustness/drill.py [--scenario worker-killed --scenario preempted]
        [--data cifar-10-binary.tar.gz] [--set train.model=resnet20]
    python benchmarks/robustness/drill.py --list

Each scenario trains a small model in several processes on this machine and injects a fault: a
killed or frozen process, a full disk, a corrupt record. It counts the seconds from the fault until
its detection and until the training run has recovered, and the steps that it repeats. It also
checks that the final weights equal those of a training run without a fault, bit for bit. The drill
does not touch your runs. All scenarios take about 15 minutes on two cores. The exit code is 1 if a
scenario fails.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import sys
import tempfile
import time

from faults.scenarios import SCENARIOS, Result
from faults.trainings import Drill

from common import figures, versions
from stagecraft.common.errors import said
from stagecraft.common.text import columns
from stagecraft.pipeline import load_settings

HEADER = (
    "scenario",
    "detected after",
    "recovered after",
    "steps lost",
    "weights",
    "seconds",
    "verdict",
)
SMALL = ("data.sample_train=600", "data.sample_test=100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--scenario", action="append", choices=list(SCENARIOS), metavar="NAME", help="default: all"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios, and run none")
    parser.add_argument("--data", help="an archive or folder of CIFAR-10; default: a sample")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    args = parser.parse_args()
    if args.list:
        print(columns([(name, each.description) for name, each in SCENARIOS.items()]))
        return
    data = (f"data.source={args.data}",) if args.data else ()
    settings = load_settings("quickstart", (*SMALL, *data, *args.set))
    names = args.scenario or list(SCENARIOS)
    folder, results = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-drill-")), {}
    with (folder / "drill.log").open("ab", buffering=0) as log:
        drill = Drill(settings, folder, log)
        for name in names:
            print(f"{name}: {SCENARIOS[name].description}", file=sys.stderr)
            began = time.monotonic()
            try:
                result = SCENARIOS[name].run(drill, name)
            except Exception as error:  # the other scenarios can still run
                result = Result(passed=False, said=said(error))
            results[name] = result, time.monotonic() - began
    print(versions())
    print(columns([HEADER, *(_cells(name, *each) for name, each in results.items())]))
    failed = {name: each.said for name, (each, _) in results.items() if not each.passed}
    if failed:
        sys.exit(f"failed: {failed}; log: {folder / 'drill.log'}")
    shutil.rmtree(folder, ignore_errors=True)
    figures(
        lower={
            f"{name}: seconds until recovered": each.recovered
            for name, (each, _) in results.items()
            if each.recovered is not None
        }
    )


def _cells(name: str, result: Result, seconds: float) -> tuple[str, ...]:
    return (
        name,
        "–" if result.detected is None else f"{result.detected:.1f} s",
        "–" if result.recovered is None else f"{result.recovered:.1f} s",
        "–" if result.steps_lost is None else str(result.steps_lost),
        {True: "equal", False: "differ", None: "–"}[result.equal],
        f"{seconds:.0f}",
        "passed" if result.passed else "FAILED",
    )


if __name__ == "__main__":
    main()
