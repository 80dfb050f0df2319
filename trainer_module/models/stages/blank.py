"""Models without values: their costs are known, but their weights take no memory.

Keras gives the variables of a ``StatelessScope`` no values until the scope ends, or for ever with
``initialize_variables=False``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """A scope for :func:`~stagecraft.trainer_module.models.assemble.assemble`."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    # The end of any other such scope would give values to all variables that Keras remembers.
    keras.utils.clear_session(free_memory=False)


def are_blank(variables: Sequence[Any]) -> bool:
    """Whether variables have no values."""
    # Private, but any public way to ask makes the value.
    return any(getattr(variable, "_value", variable) is None for variable in variables)


def trace(variables: Sequence[Any], call: Callable[[Any], Any], inputs: Any) -> Any:
    """The concrete function of a call, with the variables as inputs of its graph.

    Args:
        inputs: specs of the argument of ``call``.
    """

    def stateless(given: Any, values: Sequence[tf.Tensor]) -> Any:
        pairs = list(zip(variables, values, strict=True))
        with keras.StatelessScope(pairs, initialize_variables=False):
            return call(given)

    specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]
    return tf.function(stateless, autograph=False).get_concrete_function(inputs, specs)
