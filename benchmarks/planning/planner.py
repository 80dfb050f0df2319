"""Compares the planner's stage times with measured ones, and its cuts with equal layers.

    python benchmarks/planning/planner.py [--model resnet20 --model resnet56]
                                          [--stages 2 --stages 3 --stages 4] [--rounds 7]
                                          [--batch 32]

For each model and number of stages K, stages run on logical CPUs one after the other (M = 1), so
that they do not slow each other down. Columns:

    off by      largest difference between predicted and measured share of a stage, in percentage
                points. Predictions are from measured parts, and from floating-point operations, for
                the same cuts.
    slowest     time of the slowest stage with cuts by measured times, divided by its time with
                equal numbers of layers. Below 1, the planner's cuts are faster.

Stage times come from the timeline of a step. They are medians of rounds in which both cuts take a
step.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from common import ARGUMENTS, engine_for, figures, noise, options, spread
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.planning import planner
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings
from stagecraft.trainer_module.training.monitoring.timeline import find_spans, record_ops, slots_of

MODELS, STAGES = ("resnet20", "resnet56", "wide_resnet_16_4"), (2, 3, 4)


def main() -> None:
    parser = options(__doc__, rounds=7, batch=32)
    parser.add_argument("--model", action="append")
    parser.add_argument("--stages", type=int, action="append")
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # hides warnings about retracing: each engine is traced once
    print(f"{args.batch} examples a step, medians of {args.rounds} rounds")
    print("model             K  off by, measured  off by, operations  slowest, to equal layers")
    errors, slowest = [], []
    for name, stages in itertools.product(args.model or MODELS, args.stages or STAGES):
        train = TrainSettings(model=name, batch_size=args.batch, schedule="constant")
        parallel = ParallelSettings(
            strategy="grid", stages=stages, virtual_devices=max(STAGES), costs="measured"
        )
        devices = topology.resolve(parallel)
        model = assemble(train, ARGUMENTS)
        plan = planner.make_plan(
            model, TrainingSettings(train=train, parallel=parallel), devices.devices
        )
        even = equal_layers(model, stages)
        by_operations = planner.make_plan(
            model, with_cuts(train, parallel, plan.cuts), devices.devices
        )
        sides = [stepper(with_cuts(train, parallel, cuts)) for cuts in (plan.cuts, even)]
        rounds = [[side() for side in sides] for _ in range(args.rounds)]
        ours, _ = (
            [statistics.median(times) for times in zip(*side, strict=True)]
            for side in zip(*rounds, strict=True)
        )
        found = [one / sum(ours) for one in ours]
        errors.append(off_by(found, [stage.share for stage in plan.stages]))
        ratios = [max(one) / max(other) for one, other in rounds]
        print(
            f"{name:16}  {stages}  {errors[-1]:16.1f}  "
            f"{off_by(found, [s.share for s in by_operations.stages]):18.1f}  "
            f"{spread(ratios)}",
            flush=True,
        )
        slowest.append(statistics.median(ratios))
    figures(
        lower={
            "largest error of a stage's share, points": max(errors),
            "slowest stage, to equal layers, median": statistics.median(slowest),
        }
    )


def off_by(found: Sequence[float], predicted: Sequence[float]) -> float:
    """Returns the largest difference of shares, in percentage points."""
    return 100 * max(abs(one - other) for one, other in zip(found, predicted, strict=True))


def with_cuts(
    train: TrainSettings, parallel: ParallelSettings, cuts: Sequence[str]
) -> TrainingSettings:
    named = parallel.model_copy(update={"cuts": tuple(cuts), "costs": "flops"})
    return TrainingSettings(train=train, parallel=named)


def equal_layers(model: keras.Model, stages: int) -> list[str]:
    """Returns the cuts nearest to equal numbers of layers per stage."""
    names = [layer.name for layer in model.layers]
    legal = [point.layer for point in partition.cut_points(model)]
    wanted = [len(names) * (number + 1) / stages for number in range(stages - 1)]
    return [min(legal, key=lambda name: abs(names.index(name) + 1 - place)) for place in wanted]


def stepper(settings: TrainingSettings) -> Callable[[], list[float]]:
    """Takes a step, and tells each stage's seconds in it."""
    engine = engine_for(settings)
    batches = engine.feed(noise(settings.train.batch_size))
    engine.train(batches, 2)

    def step() -> list[float]:
        with record_ops() as ops:
            engine.train(batches, 1)
        slots = slots_of(find_spans(ops, settings.parallel.stages))
        return [
            sum(slot.end - slot.begin for slot in slots if slot.done.stage == stage)
            for stage in range(settings.parallel.stages)
        ]

    return step


if __name__ == "__main__":
    main()
