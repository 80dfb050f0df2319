"""Measures the images per second of the Trainer's input pipeline.

    python benchmarks/pipelines/input_data.py ARCHIVE [--rounds 5] [--seconds 3] [--warm-up 1]
                                              [--batch 128]

ARCHIVE is cifar-10-binary.tar.gz. The data components run once (``stagecraft run --to Transform``).
Then the benchmark iterates over the Trainer's dataset of global batches without training. It
alternates between all shuffles and augmentations. Each combination warms up in every round, because
tf.data tunes its number of threads while it runs.
"""

from __future__ import annotations

import itertools
import pathlib
import statistics
import tempfile
import time

import tensorflow_transform as tft

from common import call, figures, options, spread, stagecraft, versions
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.settings import TrainSettings

AUGMENTATIONS = ("none", "flip", "crop,flip", "crop,flip,cutout")
SHUFFLES = ("memory", "stream")
MAIN = ", crop,flip:"
"""The main figures: the augmentation that most recipes of CIFAR-10 have."""


def main() -> None:
    parser = options(__doc__, rounds=5, seconds=3.0, batch=128)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before each")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder)
        words = ("run", "--to", "Transform", "--data", args.archive, "--output", output)
        call(stagecraft(*words, settings={}))
        (examples,) = output.glob("pipeline_root/Cifar10ExampleGen/examples/*/Split-train")
        (graph,) = output.glob("pipeline_root/Transform/transform_graph/*")
        files = [str(examples / "*")]
        count = input_data.count_examples(files)
        transform = tft.TFTransformOutput(str(graph))
        print(f"{versions()}; {count:,} examples; medians of {args.rounds} rounds, with the range")
        sides = list(itertools.product(SHUFFLES, AUGMENTATIONS))
        datasets = [
            iter(
                input_data.train_dataset(
                    files,
                    transform,
                    TrainSettings(batch_size=args.batch, shuffle=shuffle, augment=augment),
                    count,
                )
            )
            for shuffle, augment in sides
        ]
        rounds = [
            [rate(data, args.warm_up, args.seconds) for data in datasets]
            for _ in range(args.rounds)
        ]
        print("shuffle  augment            images/s")
        found = {}
        for (shuffle, augment), rates in zip(sides, zip(*rounds, strict=True), strict=True):
            print(f"{shuffle:7}  {augment:16}  {spread(rates, ',.0f')}")
            found[f"{shuffle}, {augment}: images/s"] = statistics.median(rates)
        figures(higher={name: value for name, value in found.items() if MAIN in name})


def rate(batches: object, warm_up: float, seconds: float) -> float:
    """Returns images per second, after a warm-up in seconds."""
    for wanted in (warm_up, seconds):
        begun, images = time.perf_counter(), 0
        while (took := time.perf_counter() - begun) < wanted:
            images += int(next(batches).targets.shape[0])  # type: ignore[call-overload]
    return images / took


if __name__ == "__main__":
    main()
