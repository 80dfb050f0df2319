"""What Keras's own fit keeps on a topology, as TensorFlow's allocator counts it."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import stagecraft as sc

ROWS, WIDTH = 64, 128
X = np.random.default_rng(0).normal(size=(ROWS, 64, WIDTH)).astype("float32")


def peak(*, remat: bool) -> float:
    """Bytes of all tensors of a step, at most."""
    keras.utils.clear_session()
    given = hidden = keras.Input((64, WIDTH))
    for _ in range(12):
        hidden = layers.Dense(WIDTH, "gelu")(hidden)
    parallel = sc.Parallel(strategy="grid", stages=2, microbatches=4, remat=remat)
    engine = sc.engine(keras.Model(given, hidden), "mse", "sgd", parallel)
    for _ in range(2):  # the first one traces
        tf.config.experimental.reset_memory_stats("CPU:0")
        engine.train_step((X, X))
    found: int = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    return found


def test_remat_keeps_segments():
    assert peak(remat=True) < 0.5 * peak(remat=False)
