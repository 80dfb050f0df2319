"""Puts back what a training changes in its process: seeds, Keras's names, options of TensorFlow."""

from __future__ import annotations

import contextlib
import importlib
import random
from collections.abc import Iterator

import numpy as np
from keras.src.backend.common import global_state
from tensorflow.python.eager import context


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """After the block, the process has its old random state, Keras state and graph options.

    Keras's state has the dtype policy, and the numbers in names of new layers (``dense_3``). The
    generators of random numbers are those of Python, NumPy and TensorFlow.
    """
    eager = context.context()
    python, numpy, tensorflow = random.getstate(), np.random.get_state(), _seeds(eager)
    trackers = global_state.GLOBAL_STATE_TRACKER, global_state.GLOBAL_SETTINGS_TRACKER
    try:
        with graph_options():
            yield
    finally:
        # keras.utils.clear_session replaces these objects.
        global_state.GLOBAL_STATE_TRACKER, global_state.GLOBAL_SETTINGS_TRACKER = trackers
        random.setstate(python)
        np.random.set_state(numpy)
        eager._seed, generator = tensorflow
        if generator is None:
            vars(eager).pop("_rng", None)  # TensorFlow makes it with the first seed
        else:
            eager._rng = generator


@contextlib.contextmanager
def graph_options() -> Iterator[None]:
    """After the block, TensorFlow optimizes graphs as before."""
    eager = context.context()
    options = dict(eager._optimizer_experimental_options)
    try:
        yield
    finally:
        if eager._optimizer_experimental_options != options:
            # The public setter adds options; it cannot take one away.
            eager._optimizer_experimental_options = options
            eager._thread_local_data.function_call_options = None


def _seeds(eager: context.Context) -> tuple[int | None, random.Random | None]:
    """TensorFlow's global seed, and the generator of the seeds of its operations."""
    rng = getattr(eager, "_rng", None)
    if rng is None:
        return eager._seed, None
    copy = random.Random()
    copy.setstate(rng.getstate())
    return eager._seed, copy


@contextlib.contextmanager
def as_tf_keras() -> Iterator[None]:
    """Makes ``tf.keras`` Keras 3 in the block.

    TensorFlow Transform sets ``TF_USE_LEGACY_KERAS``, so in each process of TFX ``tf.keras`` is
    Keras 2, which no engine here trains. ``from tensorflow import keras`` stays what it was.
    """
    import tensorflow as tf

    before = vars(tf)["keras"]
    # Private, and what TensorFlow itself imports for tf.keras without that variable.
    vars(tf)["keras"] = importlib.import_module("keras._tf_keras.keras")
    try:
        yield
    finally:
        vars(tf)["keras"] = before
