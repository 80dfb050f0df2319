"""Models without values: their costs are known, but their weights take no memory.

Keras gives the variables of a ``StatelessScope`` no values until the scope ends, or for ever with
``initialize_variables=False``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

_PENDING = "uninitialized_variables"
_SCOPE = "stateless_scope"


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """In the block, layers and models that are made get variables without values."""
    # Private, but the end of any other such scope gives values to all variables in this list.
    before = list(global_state.get_global_attribute(_PENDING, []))
    kind: Any = keras.optimizers.Optimizer
    initialize = kind.__init__
    kind.__init__ = _with_values(initialize)
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        kind.__init__ = initialize
        global_state.set_global_attribute(_PENDING, before)


def _with_values(call: Callable[..., None]) -> Callable[..., None]:
    """The call outside of the scope: an optimizer gives its counter a value, as it must."""

    @functools.wraps(call)
    def initialize(*args: Any, **kwargs: Any) -> None:
        before = global_state.get_global_attribute(_SCOPE)
        global_state.set_global_attribute(_SCOPE, None)
        try:
            call(*args, **kwargs)
        finally:
            global_state.set_global_attribute(_SCOPE, before)

    return initialize


def are_blank(variables: Sequence[Any]) -> bool:
    """Whether variables have no values."""
    # Private, but any public way to ask makes the value.
    return any(getattr(variable, "_value", variable) is None for variable in variables)


def trace(variables: Sequence[Any], call: Callable[[Any], Any], inputs: Any) -> Any:
    """The concrete function of a call, with the variables as inputs of its graph.

    Args:
        inputs: specs of the argument of ``call``: each ``[batch, ...]``.
    """

    def stateless(given: Any, values: Sequence[tf.Tensor]) -> Any:
        pairs = list(zip(variables, values, strict=True))
        with keras.StatelessScope(pairs, initialize_variables=False):
            return call(given)

    specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]
    return tf.function(stateless, autograph=False).get_concrete_function(inputs, specs)
