"""Keeps an optimizer's state, and its work, on the devices of the variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend

from stagecraft import copies


def move(variable: Any, home: str) -> None:
    """Moves a variable to a device."""
    value = variable._value
    if not value.device.endswith(home):
        with tf.init_scope(), tf.device(home):
            variable._value = None
            variable._initialize(tf.identity(value))


@contextlib.contextmanager
def at_home(optimizer: Any, home: Callable[[Any], str]) -> Iterator[None]:
    """In the block, an optimizer makes the state of a variable, and updates it, on its device.

    Args:
        optimizer: None: there is none.
        home: of a variable of the model.
    """
    with contextlib.ExitStack() as stack:
        for each in _chain(optimizer):
            stack.enter_context(_made_at_home(each, home))
        stack.enter_context(_updating_at_home())
        yield


def move_state(optimizer: Any, home: Callable[[Any], str]) -> None:
    """Moves what an optimizer has of each variable to the variable's device."""
    for each in _chain(optimizer):
        variables = getattr(each, "_trainable_variables", None) or ()
        states = [  # momentums, averages and the like
            state
            for state in vars(each).values()
            if isinstance(state, (list, tuple)) and len(state) == len(variables)
        ]
        for state in states:
            for own, variable in zip(state, variables, strict=True):
                if isinstance(own, keras.Variable):
                    move(own, home(variable))
    copies.forget(optimizer)


def _chain(optimizer: Any) -> Iterator[Any]:
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


@contextlib.contextmanager
def _made_at_home(optimizer: Any, home: Callable[[Any], str]) -> Iterator[None]:
    name = "add_variable_from_reference"
    own = getattr(optimizer, name)

    def add(reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
        with tf.init_scope(), tf.device(home(reference_variable)), backend.AutocastScope(None):
            return own(reference_variable, *args, **kwargs)

    vars(optimizer)[name] = add
    try:
        yield
    finally:
        vars(optimizer).pop(name, None)


@contextlib.contextmanager
def _updating_at_home() -> Iterator[None]:
    """Makes ``tf.distribute`` update on the device of the variable, also without a strategy.

    Keras's optimizers update by it (``keras/src/backend/tensorflow/optimizer.py``).
    """
    extended = tf.distribute.get_strategy().extended
    own = extended.update

    def update(variable: Any, *args: Any, **kwargs: Any) -> Any:
        with tf.device(variable.device):
            return own(variable, *args, **kwargs)

    before = vars(extended).get("update")
    vars(extended)["update"] = update
    try:
        yield
    finally:
        vars(extended).pop("update")
        if before is not None:
            vars(extended)["update"] = before
