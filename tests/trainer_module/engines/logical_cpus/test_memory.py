"""What Keras's own fit keeps on a topology, as TensorFlow's allocator counts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

CODE = """
import json

import keras
import numpy as np
import tensorflow as tf

import stagecraft as sc

sc.virtual_devices(2)
x = np.random.default_rng(0).normal(size=(64, 64, 128)).astype("float32")


def peak(remat):
    given = hidden = keras.Input((64, 128))
    for _ in range(12):
        hidden = keras.layers.Dense(128, "gelu")(hidden)
    parallel = sc.Parallel(strategy="grid", stages=2, microbatches=4, remat=remat)
    engine = sc.engine(
        keras.Model(given, hidden), loss="mse", optimizer="sgd", parallel=parallel
    )
    for _ in range(2):  # the first one traces
        tf.config.experimental.reset_memory_stats("CPU:0")
        engine.train_step((x, x))
    return tf.config.experimental.get_memory_info("CPU:0")["peak"]


print(json.dumps([peak(True), peak(False)]))
"""
"""Prints the most bytes of all tensors of a step, with remat and without."""


def test_remat_keeps_segments():
    # TensorFlow counts the tensors of a CPU with oneDNN only, which is off on some processors.
    environment = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "1"}
    words = [sys.executable, "-c", CODE]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    with_remat, without = json.loads(done.stdout.splitlines()[-1])
    assert with_remat < 0.5 * without
