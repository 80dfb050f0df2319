"""Compares the speed of ``stagecraft.fit`` with ``keras.Model.fit`` on one device.

    python benchmarks/engine/fit.py [--model cnn] [--model resnet20] [--model transformer]
                                    [--rounds 5] [--examples 2560] [--batch 128]

Stagecraft may take several steps in one call of TensorFlow (``steps_per_execution="auto"``).
Both train the same Keras model on the same arrays in memory, with Adam and accuracy. A call trains
two epochs; each side's seconds are those of its second epoch, since the first one traces. Rounds
alternate. Keras runs without XLA, which makes both slower on CPUs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import keras
import numpy as np

import stagecraft as sc
from common import ARGUMENTS, CLASSES, figures, spread, versions
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.settings import TrainSettings

IDS, LENGTH, WIDTH = 1000, 32, 64
"""Of the transformer: numbers of tokens, of tokens in a text, and of features."""


class Clock(keras.callbacks.Callback):
    """Seconds of the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds = time.perf_counter() - self._start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", help="default: all of them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--examples", type=int, default=2560)
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    print(f"{versions()}; images/s, median of {args.rounds} rounds of {args.examples} images")
    rng = np.random.default_rng(0)
    images = rng.standard_normal((args.examples, 32, 32, 3), np.float32)
    tokens = rng.integers(IDS, size=(args.examples, LENGTH))
    y = rng.integers(CLASSES, size=args.examples)
    found = {}
    for name in args.model or ["cnn", "resnet20", "transformer"]:
        x = tokens if name == "transformer" else images
        rates: dict[str, list[float]] = {"ours": [], "keras": []}
        for _ in range(args.rounds):
            for side in rates:
                model = make(name)
                seconds = train(side, model, x, y, args.batch)
                rates[side].append(args.examples / seconds)
        ratios = [a / b for a, b in zip(rates["ours"], rates["keras"], strict=True)]
        medians = {side: statistics.median(values) for side, values in rates.items()}
        print(
            f"{name:9} ours {medians['ours']:7,.0f}  keras {medians['keras']:7,.0f}  "
            f"ours / keras {spread(ratios)}"
        )
        found[f"{name}, batch {args.batch}: speed, Stagecraft / Keras"] = statistics.median(ratios)
    figures(higher=found)


def make(name: str) -> keras.Model:
    """A model of the pipeline, or two blocks of a transformer."""
    if name != "transformer":
        return assemble(TrainSettings(model=name), ARGUMENTS)
    given = keras.Input((LENGTH,), dtype="int32")
    hidden = keras.layers.Embedding(IDS, WIDTH)(given)
    for _ in range(2):
        attention = keras.layers.MultiHeadAttention(4, WIDTH // 4)(hidden, hidden)
        hidden = keras.layers.LayerNormalization()(hidden + attention)
        inner = keras.layers.Dense(4 * WIDTH, "gelu")(hidden)
        hidden = keras.layers.LayerNormalization()(hidden + keras.layers.Dense(WIDTH)(inner))
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(given, keras.layers.Dense(CLASSES)(pooled))


def train(side: str, model: keras.Model, x: np.ndarray, y: np.ndarray, batch: int) -> float:
    """Seconds of the second epoch."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    clock = Clock()
    more: dict[str, Any] = {"batch_size": batch, "epochs": 2, "verbose": 0, "callbacks": [clock]}
    if side == "ours":
        compiled = {"loss": loss, "optimizer": "adam", "metrics": ["accuracy"]}
        sc.fit(model, x, y, **compiled, steps_per_execution="auto", **more)
    else:
        model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
        model.fit(x, y, **more)
    return clock.seconds


if __name__ == "__main__":
    main()
