"""Measures what each device holds of layers that shards divide.

    python benchmarks/engine/shards.py [--shards 4] [--mb 400] [--rounds 3]

The model looks up ids in an Embedding of ``--mb`` megabytes, and has a Dense of the same size and
one of a tenth. Adam trains it on logical CPUs, on one device and with ``parallel.shards``, each in
a process of its own. The bytes are those of the variables on each device after a step, and of the
gradients that the optimizer of each device takes, by the device of the ops that compute them. The
engine has checked that the ops ran on these devices. The last columns compare weights, gradients
and slots with those of one device.

The seconds are those of steps in turns. Logical CPUs share their cores, so shards cannot be faster
here: the ratio is what the copies and the sums cost.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from common import engine_for, figures, noise, options, serve, spread, start, take_turns

EXAMPLES, IDS, WIDTH = 4, 8, 100


def arguments() -> argparse.Namespace:
    parser = options(__doc__, shards=4)
    parser.add_argument("--mb", type=float, default=400, help="size of each of the two layers")
    parser.add_argument("--rounds", type=int, default=3, help="steps that are timed")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.child:
        measure(args.child)
        return
    print(f"an Embedding and a Dense of {args.mb:g} MB each, Adam, {args.shards} shards")
    sides: dict[str, list[Any]] = {}
    held: dict[str, list[dict[str, float]]] = {}
    for count in (1, args.shards):
        process = start("--mb", args.mb, "--child", count)
        assert process.stdout is not None
        line = next((each for each in process.stdout if each.startswith("[")), None)
        if line is None:
            raise SystemExit("a process died; see above")
        sides[str(count)], held[str(count)] = [process], json.loads(line)
    print("devices  shard  weights MB  gradients MB  slots MB  of one device")
    (whole,) = held["1"]
    for count, devices in held.items():
        for shard, each in enumerate(devices):
            shares = " ".join(f"{each[kind] / whole[kind]:.3f}" for kind in whole)
            print(
                f"{count:>7}  {shard:5}  {each['weights'] / 1e6:10.1f}  "
                f"{each['gradients'] / 1e6:12.1f}  {each['slots'] / 1e6:8.1f}  {shares}"
            )
    rounds = take_turns(sides, args.rounds)
    ratios = [each[str(args.shards)] / each["1"] for each in rounds]
    print(f"seconds of a step, {args.shards} shards / one device: {spread(ratios)}")
    largest = max(each[kind] / whole[kind] for each in held[str(args.shards)] for kind in whole)
    figures(
        lower={
            f"{args.shards} shards: largest share of memory": largest,
            f"{args.shards} shards: seconds of a step / one device": statistics.median(ratios),
        }
    )


def measure(count: int) -> None:
    """Prints the bytes of each device, then trains a step for each line on standard input."""
    from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

    engine = engine_for(
        TrainingSettings(
            train=TrainSettings(
                model="shards:tables",
                batch_size=EXAMPLES,
                optimizer="adam",
                weight_decay=0,
                schedule="constant",
            ),
            parallel=ParallelSettings(strategy="grid", shards=count, virtual_devices=count),
        )
    )
    from stagecraft.trainer_module.engines.stage_replica import StageReplica

    gradients: dict[str, int] = {}
    update = StageReplica.update

    def watched(self: Any, given: Any, *rest: Any) -> None:
        for each in given:
            place = each.device.rpartition("device:")[2]
            gradients[place] = gradients.get(place, 0) + each.shape.num_elements() * each.dtype.size
        update(self, given, *rest)

    StageReplica.update = watched  # type: ignore[method-assign]
    engine.train(engine.feed(noise(EXAMPLES)), 1)
    StageReplica.update = update  # type: ignore[method-assign]
    held = []
    for each in engine._grid[0]:
        sizes = {"weights": size(each.weights), "gradients": gradients[each.device]}
        held.append(sizes | {"slots": size(each.optimizer.variables)})
    print(json.dumps(held), flush=True)
    serve(engine, noise(EXAMPLES))


def size(variables: Any) -> int:
    """Bytes of variables, all of which are on one device."""
    places = {each.value.device for each in variables if each.shape}
    assert len(places) == 1, places
    return sum(each.numpy().nbytes for each in variables)


def tables(input_shape: tuple[int, ...], num_classes: int) -> Any:
    """A model of an Embedding and a Dense of ``--mb`` megabytes each, and logits."""
    import keras

    rows = max(1, round(arguments().mb * 1e6 / 4 / WIDTH))

    layers, ops = keras.layers, keras.ops

    class Ids(layers.Layer):
        """Numbers below ``rows`` from the first values of an image: ``[batch, IDS]``."""

        def call(self, images: Any) -> Any:
            """Pseudorandom ids."""
            values = ops.reshape(images, (-1, 32 * 32 * 3))[:, :IDS]
            return ops.cast(ops.abs(values) * 1e6, "int32") % rows

        def compute_output_spec(self, images: Any) -> Any:
            """``[batch, IDS]``."""
            return keras.KerasTensor((images.shape[0], IDS), "int32")

    images = keras.Input(input_shape)
    hidden = layers.Embedding(rows, WIDTH, name="embedding")(Ids(name="ids")(images))
    hidden = layers.GlobalAveragePooling1D(name="mean")(hidden)
    hidden = layers.Dense(rows, activation="relu", use_bias=False, name="dense")(hidden)
    logits = layers.Dense(num_classes, use_bias=False, name="logits")(hidden)
    return keras.Model(images, logits)


if __name__ == "__main__":
    main()
