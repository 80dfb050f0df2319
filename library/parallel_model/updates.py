"""Keeps an optimizer's state, and its work, on the devices of the variables."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend

from stagecraft import copies

_at_home: ContextVar[bool] = ContextVar("at_home", default=False)
_lock = threading.Lock()


def move(variable: Any, home: str) -> None:
    """Moves a variable to a device."""
    value = variable._value
    if value.device.endswith(home):
        return
    with tf.init_scope(), tf.device(home):
        variable._value = None
        variable._initialize(tf.identity(value))
    # Keras's optimizers know variables by these, as in exclude_from_weight_decay.
    for name in ("_unique_id", "_handle_name"):
        setattr(variable._value, name, getattr(value, name))


def move_state(optimizer: Any, home: Callable[[Any], str]) -> None:
    """Moves what an optimizer has of each variable to the variable's device.

    Args:
        optimizer: built or not; None: there is none.
        home: of a variable of the model.
    """
    for each in _chain(optimizer):
        variables = getattr(each, "_trainable_variables", None) or ()
        for name, state in vars(each).items():
            if name in _OWN or not isinstance(state, (list, tuple)):
                continue
            if len(state) == len(variables):  # momentums, averages and the like
                for own, variable in zip(state, variables, strict=True):
                    if isinstance(own, keras.Variable):
                        move(own, home(variable))
    copies.forget(optimizer)


_OWN = ("_variables", "_trainable_variables")
"""Lists of an optimizer that have no entry for each variable, or the variables themselves."""


def gather(model: Any, device: str) -> None:
    """Moves the variables of a model and its optimizer to one device."""
    optimizer = getattr(model, "optimizer", None)
    for variable in [*model.variables, *getattr(optimizer, "variables", ())]:
        move(variable, device)
    copies.forget(optimizer)


@contextlib.contextmanager
def at_home(optimizer: Any, home: Callable[[Any], str]) -> Iterator[None]:
    """In the block, an optimizer makes the state of a variable, and updates it, on its device.

    Args:
        optimizer: None: there is none.
        home: of a variable of the model.
    """
    _wrap_update()
    token = _at_home.set(True)
    try:
        with contextlib.ExitStack() as stack:
            for each in _chain(optimizer):
                stack.enter_context(_made_at_home(each, home))
            yield
    finally:
        _at_home.reset(token)


@contextlib.contextmanager
def idle(optimizer: Any) -> Iterator[None]:
    """In the block, an optimizer does nothing."""
    if optimizer is None:
        yield
        return
    before = vars(optimizer).get("apply")
    vars(optimizer)["apply"] = lambda *_, **__: optimizer.iterations
    try:
        yield
    finally:
        vars(optimizer).pop("apply")
        if before is not None:
            vars(optimizer)["apply"] = before


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


def _wrap_update() -> None:
    """Makes ``tf.distribute`` update on the device of the variable in blocks of :func:`at_home`.

    Keras's optimizers update by it (``keras/src/backend/tensorflow/optimizer.py``); without a
    strategy, it leaves the device as it is. The wrapper stays: threads share the object.
    """
    extended = tf.distribute.get_strategy().extended
    with _lock:
        if "update" in vars(extended):
            return
        own = extended.update

        def update(variable: Any, *args: Any, **kwargs: Any) -> Any:
            device = getattr(variable, "device", None) if _at_home.get() else None
            with contextlib.nullcontext() if device is None else tf.device(device):
                return own(variable, *args, **kwargs)

        vars(extended)["update"] = update
