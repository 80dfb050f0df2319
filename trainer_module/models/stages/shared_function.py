"""A function that the graph contains once, however often it is called.

TensorFlow inlines functions before it runs a graph. A step of M microbatches would then contain
each op of a stage M times, and each optimizer pass of TensorFlow would copy all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that its calls, and those of its gradient, are not inlined.

    The ops of a call run on its device, unless the function names another one. TensorFlow optimizes
    and keeps a copy for each device.

    Args:
        function: maps nested structures of tensors to one; it reads no ``tf.Variable``.
    """
    shared_: Callable[..., Any] = tf.function(
        function, autograph=False, experimental_attributes={"_noinline": True}
    )
    return shared_
