"""Frees the graphs that TensorFlow's registry of gradients keeps after a training.

``tf.custom_gradient``, which an all-reduce also uses, registers a function under a new name in
each graph that it is traced into, and the function holds the graph. In a process that runs several
trainings, this adds up to megabytes for each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensorflow.python.framework import ops

_PREFIX = "CustomGradient-"
"""``tensorflow/python/ops/custom_gradient.py``, ``generate_name``."""


@contextlib.contextmanager
def cleaned_up() -> Iterator[None]:
    """Removes, after the block, the gradients of graphs that were traced in it.

    Those graphs still run; TensorFlow can no longer differentiate a call of one.
    """
    registered = ops.gradient_registry._registry
    before = set(registered)
    try:
        yield
    finally:
        for name in [name for name in registered if name.startswith(_PREFIX)]:
            if name not in before:
                del registered[name]
