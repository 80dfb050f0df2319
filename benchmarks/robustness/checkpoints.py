"""Measures how long a checkpoint stops training, in the background and blocking.

    python benchmarks/robustness/checkpoints.py [--model wide_resnet_16_8] [--batch-size 8]
                                                [--rounds 5] [--folder DIR]

One device, AdamW. Each round first takes some steps without a checkpoint. Their median is the time
of a step. Then it measures:

    blocking    the copy of the state, and the whole save: write, sync, commit
    pause       the copy, the call of save, and the slowdown of the next step
    whole       the same, with the slowdown of all steps until the commit

A thread removes all but the newest checkpoint in the background. DIR should be on the disk of the
real checkpoints (default: the temporary folder of the system).
"""

from __future__ import annotations

import pathlib
import statistics
import tempfile
from collections.abc import Callable

from common import engine_for, figures, noise, options, timed, versions
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.settings import TrainingSettings

UNDISTURBED = 7
COLUMNS = ("step", "blocking", "call", "pause", "whole")


def main() -> None:
    parser = options(__doc__, batch_size=8, rounds=5)
    parser.add_argument("--model", default="wide_resnet_16_8", help="11 million weights")
    parser.add_argument("--folder", type=pathlib.Path)
    args = parser.parse_args()
    engine, step = make(args.model, args.batch_size)
    sizes = [value.nbytes for value in engine.state().values()]
    weights = sum(value.size for value in engine.weights().values())
    print(
        f"{versions()}; {args.model}, {weights:,} weights, AdamW: {sum(sizes) / 1e6:.0f} MB a "
        f"checkpoint; batches of {args.batch_size}; ms"
    )
    print("round   " + "".join(f"{name:>10}" for name in COLUMNS) + "   pause/blocking")
    with (
        tempfile.TemporaryDirectory(dir=args.folder) as folder,
        Checkpoints(folder, keep=1) as store,
    ):
        measure(engine, store, step)  # warm-up: the first copy and the first save are slower
        rows = []
        for number in range(args.rounds):
            rows.append(measure(engine, store, step))
            show(str(number + 1), rows[-1])
    medians = [statistics.median(column) for column in zip(*rows, strict=True)]
    show("median", medians)
    _, blocking, call, pause, _ = medians
    figures(lower={"call, ms": 1e3 * call, "pause / blocking save": pause / blocking})


def show(name: str, row: list[float]) -> None:
    _, blocking, _, pause, _ = row
    print(f"{name:8}" + "".join(f"{1e3 * value:10,.1f}" for value in row), end="")
    print(f"{pause / blocking:16.1%}", flush=True)


def measure(engine: Engine, store: Checkpoints, step: Callable[[], float]) -> list[float]:
    """Returns seconds, by COLUMNS."""
    median = statistics.median(step() for _ in range(UNDISTURBED))
    blocking = timed(lambda: (save(engine, store), store.flush()))
    step()
    saved = engine.step
    call = timed(lambda: save(engine, store))
    steps = [step()]
    while store.steps()[-1] < saved:
        steps.append(step())
    store.flush()
    late = [seconds - median for seconds in steps]
    return [median, blocking, call, call + late[0], call + sum(late)]


def save(engine: Engine, store: Checkpoints) -> None:
    store.save(engine.step, engine.snapshot(), {}, best_step=engine.step)


def make(model: str, batch_size: int) -> tuple[Engine, Callable[[], float]]:
    """Returns the traced engine, and a function that takes one step and returns its seconds."""
    settings = TrainingSettings.model_validate(
        {"train": {"model": model, "batch_size": batch_size, "optimizer": "adamw", "steps": 10_000}}
    )
    engine = engine_for(settings, steps=10_000)
    batches = engine.feed(noise(batch_size))
    engine.train(batches, 2)
    return engine, lambda: timed(lambda: engine.train(batches, 1))


if __name__ == "__main__":
    main()
