"""A chief that trains on parameter servers until it is ended, or one of those it trains with.

    TF_CONFIG=… python serve.py '{"strategy": "parameter_server", "workers": 2}'

Every call takes the same batches, with a learning rate that leaves the weights as they are: its
loss says that it took each of them once. Prints a line of JSON at the start, and one a call:

    devices     of the variables
    expected    loss of all batches
    steps       of a call
    loss        of those of the call
    step        and
    batches     as the engine counts them
    repeated    steps that were applied twice
"""

import json
import sys
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines.factory import connect
from stagecraft.trainer_module.engines.parameter_server import ParameterServerEngine, serve
from stagecraft.trainer_module.parallel import cluster, topology
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

BATCH, BATCHES, CLASSES = 8, 6, 4
STEPS = 4 * BATCHES
"""Of a call: all batches four times, more than are on their way together."""


def train_data() -> tf.data.Dataset:
    draw, count = np.random.RandomState(BATCHES * BATCH), BATCHES * BATCH
    labels = draw.randint(0, CLASSES, count).astype(np.int64)
    images = draw.randn(count, 8, 8, 3).astype(np.float32)
    images[np.arange(count), 0, 0, 0] += 2.0 * labels
    parts = Batch(images, labels, np.ones(count, np.float32))
    return tf.data.Dataset.from_tensor_slices(parts).batch(BATCH, True)


def build(scope: AbstractContextManager[Any]) -> keras.Model:
    with scope:
        images = keras.Input((8, 8, 3))
        hidden = keras.layers.Dense(8, activation="relu")(keras.layers.Flatten()(images))
        return keras.Model(images, keras.layers.Dense(CLASSES)(hidden))


def main(parallel: str) -> None:
    asked = ParallelSettings(**json.loads(parallel))
    here = cluster.training(asked)
    if here is None or here.role != "chief":
        serve()
    tf.get_logger().setLevel("INFO")  # says when a worker is back
    settings = TrainingSettings(
        train=TrainSettings(batch_size=BATCH, learning_rate=1e-15), parallel=asked
    )
    devices = topology.resolve(asked)
    strategy = connect(devices, asked)
    engine = ParameterServerEngine(strategy, devices, settings, 1_000_000, build)
    data = train_data()
    variables = [variable.value for variable in engine._model.variables]
    print(
        json.dumps(
            {
                "devices": sorted({variable.device for variable in variables}),
                "expected": engine.evaluate(data).loss,
                "steps": STEPS,
            }
        ),
        flush=True,
    )
    batches = engine.feed(data.repeat())
    while True:
        report = {
            "loss": engine.train(batches, STEPS).loss,
            "step": engine.step,
            "batches": engine.batches,
            "repeated": engine.repeated,
        }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
