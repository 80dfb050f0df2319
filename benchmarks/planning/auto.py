"""Compares the topology that ``parallel.strategy: auto`` takes with all that were tried.

    python benchmarks/planning/auto.py [--model even --model heavy --model uneven]
                                       [--devices 2 --devices 4 --devices 8] [--rounds 3]
    python benchmarks/planning/auto.py --here cnn --here resnet20 [--rounds 7]

The devices of the first command are emulated. A layer has its device for itself. It sleeps 4 ms for
each pass, and a stated time for each example, or its shard's part of this time. What the engine
copies or sums between devices takes the time of its bytes over a stated link. So the speed of this
machine hardly matters. The second command trains models on two logical devices of this machine,
with one thread for each kernel; the search measures the layers, and knows no links.

The program trains with every division of the devices into replicas, stages and shards, and on one
device. Stages have up to four microbatches for each stage, and one or two virtual stages. The
search is free in everything. If it takes another topology, this one is tried as well. Steps of all
topologies take turns. Columns:

    tried        topologies that trained
    chosen       replicas x stages x shards, microbatches, virtual stages; its measured step
    best         the same of the fastest
    chosen/best  the step of the chosen topology over that of the fastest
    error        of the predicted steps of all topologies: the median, and the largest
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from emulated.devices import BACKWARD, BUSY, Busy, linked

from common import ARGUMENTS, engine_for, figures, noise, options, repeated, timed, versions
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.costs import Times, stage_costs
from stagecraft.trainer_module.parallel.topology import configure_devices
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.planning.collective_costs import Links
from stagecraft.trainer_module.planning.cost_model import CostModel, Degrees
from stagecraft.trainer_module.planning.model_pieces import prepare
from stagecraft.trainer_module.planning.search.search import Search, settings_with
from stagecraft.trainer_module.planning.search.space import Space, divisors
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings
from stagecraft.trainer_module.tensor_parallel.costs import with_shards

DEVICES, REAL_DEVICES = (2, 4, 8), 2
BATCH, FEATURES, CLASSES = 16, 32, 4
REAL_BATCH = 128
LAUNCH_MS = 4.0
"""Of the forward pass of a layer, besides the time of the examples."""
ENOUGH_MICROBATCHES = 4
"""Per stage."""
THREADS = 64
"""An op that sleeps holds one of the executor's threads."""
MEMORY_MB = 1000


class Layers(NamedTuple):
    """A model: units and milliseconds of the layers, and the link of its devices."""

    units: tuple[int, ...]
    milliseconds: tuple[float, ...]
    """Of a forward pass of one example."""
    rate: float
    """Bytes a second between two devices."""
    launch: float = LAUNCH_MS

    def slower(self, scale: float) -> Layers:
        """The same with all times multiplied."""
        times = tuple(scale * each for each in self.milliseconds)
        return Layers(self.units, times, self.rate / scale, scale * self.launch)


MODELS = {
    # Few weights, equal layers.
    "even": Layers((64,) * 8, (8,) * 8, 1e6),
    # Weights that are large for the link, equal layers.
    "heavy": Layers((512,) * 8, (8,) * 8, 20e6),
    # Half of the time and most weights in two layers, which no cut divides.
    "uneven": Layers((32, 32, 32, 2048, 128, 32, 32), (4, 4, 8, 16, 16, 4, 4), 20e6),
}


class Case(NamedTuple):
    """A model on some devices."""

    name: str
    devices: int
    settings: TrainingSettings
    build: Callable[[AbstractContextManager[Any]], keras.Model]
    data: Callable[[], tf.data.Dataset]
    names: list[str]
    """Cut points between the pieces of"""
    work: CostModel
    strategies: tuple[str, ...]
    """Of replicas of whole models."""
    rate: float | None
    """Of emulated links."""


def main() -> None:
    parser = options(__doc__, rounds=3)
    parser.add_argument("--model", choices=MODELS, action="append", help="default: all")
    parser.add_argument("--devices", type=int, action="append", help=f"default: {DEVICES}")
    parser.add_argument("--here", action="append", help="a train.model, on this machine itself")
    parser.add_argument("--scale", type=float, default=1.0, help="of all stated times")
    parser.add_argument("--batch", type=int, default=REAL_BATCH, help="of --here")
    parser.add_argument("--verbose", action="store_true", help="print each topology")
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # hides warnings about retracing: each engine is traced once
    sys.setswitchinterval(1e-4)  # a thread must not hold the GIL for long
    devices = [REAL_DEVICES] if args.here else args.devices or list(DEVICES)
    tf.config.threading.set_inter_op_parallelism_threads(REAL_DEVICES if args.here else THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    configure_devices(ParallelSettings(strategy="grid", virtual_devices=max(devices)))
    print(f"{versions()}; medians of {args.rounds} rounds")
    print(
        "model     devices  tried  chosen             ms  best               ms  chosen/best  error"
    )
    rules = [BUSY, *registries.SHARD_RULES.entries()]
    with mock.patch.object(registries.SHARD_RULES, "entries", return_value=rules):
        if args.here:
            cases = (here(name, args.batch) for name in args.here)
        else:
            every = itertools.product(args.model or MODELS, devices)
            cases = (emulated(name, MODELS[name].slower(args.scale), n) for name, n in every)
        found = {
            f"{case.name}, {case.devices} devices: chosen / best": compare(
                case, args.rounds, verbose=args.verbose
            )
            for case in cases
        }
    figures(lower=found)


def compare(case: Case, rounds: int, *, verbose: bool) -> float:
    """Trains with all topologies, prints a row, and returns its ratio."""
    work = case.work
    chosen = Search(work, Space(work, hosts=1, devices=case.devices)).run().best[0]
    every = dict(topologies(case))
    every[chosen.degrees] = chosen.starts
    steps = measured(case, every, rounds)
    predicted = {degrees: work.length(degrees, starts) for degrees, starts in every.items()}
    if verbose:
        for degrees, seconds in steps.items():
            cuts = cut_names(case, every[degrees])
            print(
                f"  {shown(degrees)} {cuts}: {seconds:.3f} s, predicted {predicted[degrees]:.3f} s"
            )
    errors = [abs(predicted[each] / steps[each] - 1) for each in every]
    best = min(steps, key=lambda each: steps[each])
    ratio = steps[chosen.degrees] / steps[best]
    columns = "  ".join(
        f"{label(each)} {steps[each] * 1e3:6.0f}" for each in (chosen.degrees, best)
    )
    print(
        f"{case.name:8}  {case.devices:7}  {len(every):5}  {columns}  "
        f"{ratio:11.3f}  {statistics.median(errors):.1%}, {max(errors):.1%}",
        flush=True,
    )
    return ratio


def shown(degrees: Degrees) -> str:
    """The settings that differ from the defaults."""
    default = Degrees()._asdict()
    return " ".join(f"{k}={v}" for k, v in degrees._asdict().items() if v != default[k])


def label(degrees: Degrees) -> str:
    sizes = f"{degrees.replicas}x{degrees.stages}x{degrees.shards}"
    return f"{sizes}, {degrees.microbatches:2}, {degrees.virtual_stages}"


def emulated(name: str, layers: Layers, devices: int) -> Case:
    """A model of sleeping layers: its pieces with the stated times and links."""
    settings = TrainingSettings(
        train=TrainSettings(
            batch_size=BATCH, learning_rate=1e-6, weight_decay=0, schedule="constant"
        ),
        # With a limit of memory, the search takes the engine of the grid for replicas as well.
        parallel=ParallelSettings(strategy="auto", memory_mb=MEMORY_MB, virtual_devices=devices),
    )
    build = functools.partial(sleeping, layers)
    model = build(contextlib.nullcontext())
    names = partition.all_cuts(model, 1)[-1]
    pieces = partition.split(model, names)
    costs = with_shards(stage_costs(pieces, model.input), pieces, model, 2)
    busy = [[each for each in piece.layers if isinstance(each, Busy)] for piece in pieces]

    def times(examples: float, shards: int) -> list[Times]:
        every = [
            sum(each.seconds / shards + each.launch / examples for each in of_piece)
            for of_piece in busy
        ]
        return [Times(seconds, BACKWARD * seconds) for seconds in every]

    links = Links(layers.rate, layers.rate, shards=layers.rate)
    work = CostModel(costs, times(BATCH, 1), settings, links, MEMORY_MB * 1e6, times)
    return Case(
        name, devices, settings, build, vectors, names, work, strategies=("grid",), rate=layers.rate
    )


def sleeping(layers: Layers, scope: AbstractContextManager[Any]) -> keras.Model:
    with scope:
        hidden = inputs = keras.Input((FEATURES,), name="inputs")
        for number, units in enumerate(layers.units):
            seconds, launch = layers.milliseconds[number] / 1e3, layers.launch / 1e3
            hidden = Busy(units, seconds, launch, activation="relu", name=f"busy{number}")(hidden)
        return keras.Model(inputs, keras.layers.Dense(CLASSES, name="logits")(hidden))


def vectors() -> tf.data.Dataset:
    values = np.random.default_rng(0).standard_normal((BATCH, FEATURES), np.float32)
    return repeated(values, np.zeros(BATCH, np.int64))


def here(name: str, batch_size: int) -> Case:
    """A real model on this machine: its pieces with measured times."""
    settings = TrainingSettings(
        train=TrainSettings(model=name, batch_size=batch_size, schedule="constant"),
        parallel=ParallelSettings(strategy="auto", costs="measured", virtual_devices=REAL_DEVICES),
    )
    build = functools.partial(assemble, settings.train, ARGUMENTS)
    found = prepare(build(contextlib.nullcontext()), settings, "CPU:0", for_search=True)
    data = functools.partial(noise, batch_size)
    return Case(
        *(name, REAL_DEVICES, settings, build, data, found.names, found.work),
        strategies=("mirrored", "grid"),
        rate=None,
    )


def topologies(case: Case) -> Iterator[tuple[Degrees, list[int]]]:
    """The topologies that are to be tried, with their cuts."""
    batch_size, work = case.settings.train.batch_size, case.work
    yield Degrees(strategy="one_device" if case.rate is None else "grid"), []
    for replicas, shards in itertools.product(divisors(case.devices), repeat=2):
        stages = case.devices // (replicas * shards)
        if stages * replicas * shards != case.devices:
            continue
        whole = Degrees(strategy="grid", replicas=replicas, stages=stages, shards=shards)
        if stages == 1:
            alone = case.strategies if shards == 1 else ("grid",)
            yield from ((whole._replace(strategy=each), []) for each in alone)
            continue
        every = divisors(batch_size // replicas)[1:]
        for microbatches, virtual in itertools.product(every, (1, 2)):
            if microbatches > ENOUGH_MICROBATCHES * stages or (
                virtual > 1 and microbatches % stages
            ):
                continue
            degrees = whole._replace(microbatches=microbatches, virtual_stages=virtual)
            starts = work.balanced(degrees)
            if starts is not None:
                yield degrees, starts


def cut_names(case: Case, starts: list[int]) -> str:
    return ",".join(case.names[start - 1] for start in starts) or "auto"


def measured(case: Case, every: dict[Degrees, list[int]], rounds: int) -> dict[Degrees, float]:
    """Median seconds of a step of each topology."""
    steppers = {
        degrees: stepper(case, degrees, cut_names(case, starts))
        for degrees, starts in every.items()
    }
    taken = [{each: timed(step) for each, step in steppers.items()} for _ in range(rounds)]
    return {each: statistics.median(times[each] for times in taken) for each in every}


def stepper(case: Case, degrees: Degrees, cuts: str) -> Callable[[], object]:
    """Returns a function that takes one step; it is traced and warm."""
    found = settings_with(case.settings, degrees, keeps_cuts=False)
    parallel = {**found.parallel.model_dump(), "cuts": cuts}
    found = TrainingSettings.model_validate({**found.model_dump(), "parallel": parallel})
    with linked(case.rate):
        engine = engine_for(found, build=case.build)
        batches = engine.feed(case.data())
        engine.train(batches, 1)
    return lambda: engine.train(batches, 1)


if __name__ == "__main__":
    main()
