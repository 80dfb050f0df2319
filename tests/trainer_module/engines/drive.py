"""Drives the engines of topologies with as many devices, one after the other.

    python drive.py OUT.npz '{"strategy": "mirrored", "replicas": 2, "virtual_devices": 2}' ...

Every topology sees the same batches; of several workers, each its rows. Writes, for the
models `plain` (nothing in it depends on how a batch is split) and `norm` (BatchNorm, dropout):

    MODEL/STEP/NAME         the engine's state after 1 and 6 steps
    MODEL/evaluation        loss, accuracy, examples of 21 examples in batches of 8
    norm/resumed/NAME       after 6 steps, the last 3 by a second engine that took over
    MODEL/drift             largest difference between two replicas' copies of a variable
    MODEL/gradients/NAME    of the first batch, at the initial weights
    sum                     over the workers, of [1, the worker's number]
"""

from __future__ import annotations

import functools
import json
import sys
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.input_data import Batch
from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.engines.training import Engine
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

BATCH, STEPS, CLASSES = 8, 6, 4
TRAIN = {
    "plain": TrainSettings(batch_size=BATCH, learning_rate=0.05, warmup_steps=2),
    "norm": TrainSettings(
        batch_size=BATCH, optimizer="adamw", learning_rate=0.01, ema_decay=0.9, label_smoothing=0.1
    ),
}


def build(kind: str, worker: int, scope: AbstractContextManager[Any]) -> keras.Model:
    keras.utils.clear_session()
    keras.utils.set_random_seed(3 + worker)  # the chief's weights are what all begin with
    with scope:
        return model(kind)


def model(kind: str) -> keras.Model:
    images = hidden = keras.Input((8, 8, 3))
    for filters in (4, 8):
        hidden = keras.layers.Conv2D(filters, 3, strides=2, padding="same")(hidden)
        if kind == "norm":
            hidden = keras.layers.BatchNormalization()(hidden)
            hidden = keras.layers.Dropout(0.3)(hidden)
        hidden = keras.layers.ReLU()(hidden)
    hidden = keras.layers.Flatten()(hidden)
    return keras.Model(images, keras.layers.Dense(CLASSES, kernel_regularizer="l2")(hidden))


def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.RandomState(count)
    labels = draw.randint(0, CLASSES, count).astype(np.int64)
    images = draw.randn(count, 8, 8, 3).astype(np.float32)
    images[np.arange(count), 0, 0, 0] += 2.0 * labels
    return images, labels


def train_data(start: int, rows: slice) -> tf.data.Dataset:
    images, labels = examples(STEPS * BATCH)
    parts = (images, labels, np.ones(len(labels), np.float32))
    whole = tf.data.Dataset.from_tensor_slices(Batch(*parts)).batch(BATCH, True).skip(start)
    return whole.map(lambda batch: Batch(*(part[rows] for part in batch)))


def eval_data(rows: slice) -> tf.data.Dataset:
    images, labels = examples(21)
    batches = []
    for begin in range(0, 21, BATCH):
        places = np.arange(begin, begin + BATCH)[rows]
        there = np.minimum(places, 20)
        batches.append(Batch(images[there], labels[there], (places < 21).astype(np.float32)))
    return tf.data.Dataset.from_tensor_slices(Batch(*map(np.stack, zip(*batches, strict=True))))


def drift(engine: Engine) -> float:
    first, *others = engine.replica_states()
    return max(
        (float(np.abs(first[name] - other[name]).max()) for other in others for name in first),
        default=0.0,
    )


def main(out: str, parallel: str) -> None:
    asked = ParallelSettings(**json.loads(parallel))
    devices = topology.resolve(asked)
    strategy = connect(devices, asked)
    worker, workers = devices.rows
    rows = slice(BATCH * worker // workers, BATCH * (worker + 1) // workers)
    results: dict[str, Any] = {}

    def note(name: str, state: dict[str, np.ndarray]) -> None:
        results.update({f"{name}/{key}": value for key, value in state.items()})

    for kind, train in TRAIN.items():

        def make(kind: str = kind, train: TrainSettings = train) -> Engine:
            settings = TrainingSettings(train=train, parallel=asked)
            own = functools.partial(build, kind, worker)
            return make_engine(strategy, devices, settings, STEPS, own)

        engine = make()
        note(f"{kind}/gradients", engine.gradients(next(engine.feed(train_data(0, rows))))[1])
        batches = engine.feed(train_data(0, rows))
        engine.train(batches, 1)
        note(f"{kind}/1", engine.state())
        engine.train(batches, 2)
        halfway = engine.state()
        engine.train(batches, STEPS - 3)
        note(f"{kind}/6", engine.state())
        results[f"{kind}/evaluation"] = np.asarray(engine.evaluate(eval_data(rows)), np.float64)
        results[f"{kind}/drift"] = drift(engine)
        second = make()
        second.restore(halfway)
        second.train(second.feed(train_data(3, rows)), STEPS - 3)
        note(f"{kind}/resumed", second.state())
        results["sum"] = np.array(engine.sum_over_workers([1.0, float(devices.worker)]))
    np.savez(out, **results)


if __name__ == "__main__":
    for out, parallel in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        main(out, parallel)
