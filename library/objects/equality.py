"""Whether a copy of a model computes what the model computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.foreign_errors import said

_NEAR = {tf.float64: 1e-12, tf.float32: 1e-5, tf.bfloat16: 0.05, tf.float16: 0.01}
"""Differences of equal operations, in parts of the greatest value: their sums have any order."""


def check(model: keras.Model, copied: keras.Model, inputs: Any) -> None:
    """Compares regularizers and constraints; and outputs, penalties and state for some examples.

    Compares both in a training and outside of it. Both draw the same random numbers, but for those
    of TensorFlow's own functions, such as ``tf.random.normal``; such a model is not compared. The
    models stay as they are.

    Args:
        inputs: some examples, ``[batch, …]``, or a structure of them.

    Raises:
        SettingError: they differ.
    """
    for one, two in zip(model.weights, copied.weights, strict=True):
        for role in ("regularizer", "constraint"):
            if not _same(getattr(one, role), getattr(two, role), one):
                raise _differ(model, f"in a copy, {one.path} has another {role}")
    state = [tf.convert_to_tensor(each) for each in _state(model)]
    has_same_state = [each.shape for each in _state(copied)] == [each.shape for each in state]
    for training in (False, True) if has_same_state else (False,):
        state = state if has_same_state else []
        try:
            expected = _values(model, inputs, state, training)
        except Exception:  # whatever the user's layers raise; the engines say it
            continue
        try:
            found = _values(copied, inputs, state, training)
        except Exception as error:  # whatever the user's layers raise
            raise _differ(model, f"a copy fails: {said(error)}") from error
        if not _near(expected, found) and _near(expected, _values(model, inputs, state, training)):
            culprit = _culprit(model, copied, inputs, state, training)
            raise _differ(model, f"in a copy, {culprit} computes other values")


def _state(model: keras.Model) -> list[Any]:
    """The variables of a model, with those of random generators, but for metrics."""
    metrics = [metric for layer in model._flatten_layers() for metric in layer._metrics]
    excluded = {id(variable) for metric in metrics for variable in metric.variables}
    return [variable for variable in model.variables if id(variable) not in excluded]


def _beginning(model: keras.Model, state: Sequence[tf.Tensor]) -> keras.StatelessScope:
    """In this scope, a model has this state, and afterwards its own again; (): its own."""
    variables = _state(model) if state else []
    return keras.StatelessScope([*zip(variables, state, strict=True)], collect_losses=True)


def _values(
    model: keras.Model, inputs: Any, state: Sequence[tf.Tensor], training: bool
) -> list[tf.Tensor]:
    """Outputs, penalties and new state of a model that begins with a state; dense tensors only."""
    with _beginning(model, state) as scope:
        values = [*tf.nest.flatten(model(inputs, training=training)), *model.losses]
    if state:
        variables = [each for each in _state(model) if not each.trainable]
        values += [scope.get_current_value(each) for each in variables]
    return [each for each in values if isinstance(each, tf.Tensor)]


def _near(some: list[tf.Tensor], others: list[tf.Tensor]) -> bool:
    return len(some) == len(others) and all(map(are_near, some, others))


def are_near(one: tf.Tensor, two: tf.Tensor) -> bool:
    """Whether equal operations may have computed two tensors."""
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if one.dtype not in _NEAR:
        return np.array_equal(one, two)
    some, others = (np.asarray(tf.cast(each, tf.float64)) for each in (one, two))
    finite = np.isfinite(some)
    if not np.array_equal(some[~finite], others[~finite], equal_nan=True):
        return False
    size = np.max(np.abs(some[finite]), initial=0)
    difference = np.max(np.abs(some[finite] - others[finite]), initial=0)
    return bool(difference <= _NEAR[one.dtype] * size)


def _same(one: Any, two: Any, weight: Any) -> bool:
    """Whether two regularizers or constraints of a weight do the same to random values."""
    if one is None or two is None:
        return one is two
    values = tf.random.stateless_normal(weight.shape, [0, 1])
    values = tf.cast(values, weight.dtype)
    try:
        expected = tf.convert_to_tensor(one(values))
    except Exception:  # whatever the user's code raises
        return True
    try:
        return are_near(expected, tf.convert_to_tensor(two(values)))
    except Exception:  # whatever the user's code raises
        return False


def _culprit(
    model: keras.Model, copied: keras.Model, inputs: Any, state: Sequence[tf.Tensor], training: bool
) -> str:
    """The first layer of a functional model that computes other values; else the model."""
    for one, two in zip(model.layers, copied.layers, strict=False):
        values = []
        try:
            for whole, layer in ((model, one), (copied, two)):
                part = keras.Model(whole.inputs, layer.output)
                with _beginning(whole, state):
                    values.append(tf.nest.flatten(part(inputs, training=training)))
        except Exception:  # of a layer without a place of its own in the graph
            continue
        if not _near(*values):
            return f"the {type(one).__name__} {one.name}"
    return f"the {type(model).__name__}"


def _differ(model: keras.Model, problem: str) -> SettingError:
    return SettingError(
        "train.model",
        model.name,
        f"cannot be built again from its configuration: {problem}",
        "a get_config that returns all that its class needs, or a function that builds the model",
    )
