"""Compares the speed of the training loop with Keras ``fit``.

    python benchmarks/engine/training_loop.py [--model cnn] [--model resnet20] [--rounds 5]
                                              [--steps 40] [--batch 128]

Both train the same model with the same tf.data pipeline over float32 images in memory, SGD with
Nesterov momentum and weight decay. Both are traced before the first round. Rounds alternate.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from common import ARGUMENTS, CLASSES, engine_for, figures, options, spread, timed, versions
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings


def main() -> None:
    parser = options(__doc__, rounds=5, steps=40, batch=128)
    parser.add_argument("--model", action="append", help="default: cnn and resnet20")
    args = parser.parse_args()
    print(
        f"{versions()}; images/s, median of {args.rounds} rounds of {args.steps} steps of "
        f"{args.batch}"
    )
    found = {}
    for name in args.model or ["cnn", "resnet20"]:
        sides = {"ours": ours(name, args.batch), "fit": fit(name, args.batch)}
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(args.rounds):
            for side, train in sides.items():
                seconds = timed(functools.partial(train, args.steps))
                rates[side].append(args.steps * args.batch / seconds)
        ratios = [a / b for a, b in zip(rates["ours"], rates["fit"], strict=True)]
        medians = {side: statistics.median(values) for side, values in rates.items()}
        print(
            f"{name:9} ours {medians['ours']:7,.0f}  fit {medians['fit']:7,.0f}  "
            f"ours / fit {spread(ratios)}"
        )
        found[f"{name}: speed, Stagecraft / Keras"] = statistics.median(ratios)
    figures(higher=found)


def data(batch: int) -> tf.data.Dataset:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((20 * batch, 32, 32, 3), np.float32)
    labels = rng.integers(CLASSES, size=len(images))
    pictures = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().shuffle(1000)
    return pictures.batch(batch, drop_remainder=True).prefetch(2)


def ours(name: str, batch: int) -> Callable[[int], object]:
    settings = TrainingSettings(train=TrainSettings(model=name, batch_size=batch, steps=100_000))
    engine = engine_for(settings, steps=100_000)
    batches = engine.feed(data(batch).map(lambda x, y: Batch(x, y, tf.ones([batch]))))
    engine.train(batches, 2)
    return lambda steps: engine.train(batches, steps)


def fit(name: str, batch: int) -> Callable[[int], object]:
    settings = TrainSettings(model=name)
    model = assemble(settings, ARGUMENTS)
    model.compile(
        keras.optimizers.SGD(
            settings.learning_rate,
            momentum=settings.momentum,
            nesterov=True,
            weight_decay=settings.weight_decay,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,  # XLA makes both slower on CPUs
    )
    pictures = data(batch)
    model.fit(pictures, steps_per_epoch=2, verbose=0)
    return lambda steps: model.fit(pictures, steps_per_epoch=steps, verbose=0)


if __name__ == "__main__":
    main()
