"""What TensorFlow keeps of each graph for ever, given up when the training is over.

``tf.custom_gradient``, which an all-reduce uses too, registers a function under a new name in each
graph that it is traced into, and the function holds the graph. In a process that trains again and
again, these add up to megabytes a training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensorflow.python.framework import ops

_PREFIX = "CustomGradient-"
"""``tensorflow/python/ops/custom_gradient.py``, ``generate_name``."""


@contextlib.contextmanager
def given_up() -> Iterator[None]:
    """Forgets, after the block, the gradients of graphs that were traced in it.

    Those graphs still run; only the gradient of a call of one cannot be traced any more.
    """
    registered = ops.gradient_registry._registry
    before = set(registered)
    try:
        yield
    finally:
        for name in [name for name in registered if name.startswith(_PREFIX)]:
            if name not in before:
                del registered[name]
