"""One of two workers whose layers adapt to different data: python adapt.py STRATEGY OUT.npz

As on hosts that round sums differently. Writes the weights of the engine.
"""

import sys
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

from stagecraft.trainer_module.engines.factory import join, make_engine
from stagecraft.trainer_module.models.layers.own_layers import Whitening
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

strategy, out = sys.argv[1:]
parallel = ParallelSettings(strategy=strategy, workers=2)
settings = TrainingSettings(train=TrainSettings(batch_size=2), parallel=parallel)
devices, _, connected = join(parallel)
images = np.random.default_rng(devices.worker).normal(size=(9, 5, 5, 1))


def build(scope: AbstractContextManager[Any]) -> keras.Model:
    with scope:
        model = keras.Sequential(
            [
                keras.Input((5, 5, 1)),
                Whitening(name="whitening"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(10),
            ]
        )
        model.get_layer("whitening").adapt(images)
    return model


engine = make_engine(connected, devices, settings, 1, build)
own = Whitening()
own.build(images.shape)
own.adapt(images)
np.savez(out, own=own.kernel.numpy(), **engine.weights())
engine.sum_over_workers([0.0])  # an early exit looks like a crash to the other worker
