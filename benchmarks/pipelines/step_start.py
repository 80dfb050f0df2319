"""Measures what a step of a Kubeflow run costs before it works: Python's start and the imports.

    python benchmarks/pipelines/step_start.py [--rounds 5] [--side tensorflow --side run]

Each measurement is a new process that imports and ends. Sides:

    tensorflow      TensorFlow alone
    tfx             the entrypoint of TFX for Kubeflow, with TensorFlow
    run             Stagecraft's entrypoint of a component's step, with both
    resolve         of the step that computes a fingerprint
    latest-blessed  of the step that looks up the latest blessed model

The sides alternate in each round. The first round fills the cache of compiled bytecode.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys

from common import figures, options, spread, timed, versions

_ENTRYPOINT = "stagecraft.pipeline.kubeflow.entrypoint"
SIDES = {
    "tensorflow": "import tensorflow",
    "tfx": "import tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor",
    "run": f"import {_ENTRYPOINT}.__main__, {_ENTRYPOINT}.run",
    "resolve": f"import {_ENTRYPOINT}.__main__, {_ENTRYPOINT}.resolve",
    "latest-blessed": f"import {_ENTRYPOINT}.__main__, {_ENTRYPOINT}.records",
}


def main() -> None:
    parser = options(__doc__, rounds=5)
    parser.add_argument("--side", action="append", choices=tuple(SIDES), help="default: all")
    args = parser.parse_args()
    sides = args.side or list(SIDES)
    print(f"{versions()}; seconds, medians of {args.rounds} rounds, with the range")
    rounds = [
        {side: timed(functools.partial(start, side)) for side in sides}
        for _ in range(args.rounds + 1)
    ]
    found = {}
    for side in sides:
        seconds = [times[side] for times in rounds[1:]]
        extra = [times[side] - times[sides[0]] for times in rounds[1:]]
        print(
            f"{side:14}  {spread(seconds)}  more than {sides[0]}: {statistics.median(extra):5.2f}",
            flush=True,
        )
        ratios = [times[side] / times[sides[0]] for times in rounds[1:]]
        if side != sides[0]:
            found[f"{side}: seconds / {sides[0]}"] = statistics.median(ratios)
    figures(lower=found)


def start(side: str) -> None:
    # _KFP_RUNTIME: as the entrypoint sets it first
    environment = {**os.environ, "_KFP_RUNTIME": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", SIDES[side]]
    subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
