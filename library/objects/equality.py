"""Whether a copy of a model computes what the model computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.foreign_errors import said

_NEAR = {tf.float64: 1e-12, tf.float32: 1e-5, tf.bfloat16: 0.05, tf.float16: 0.01}
"""Differences of equal operations, in parts of the greatest value: their sums have any order."""


def check(model: keras.Model, copied: keras.Model, inputs: Any) -> None:
    """Compares outputs and penalties for some examples, regularizers and constraints.

    A model that draws random numbers outside of a training has no outputs to compare. What a layer
    does in a training alone is not compared either. The model's state is afterwards as before.

    Args:
        inputs: some examples, ``[batch, …]``, or a structure of them.

    Raises:
        SettingError: they differ.
    """
    for one, two in zip(model.weights, copied.weights, strict=True):
        for role in ("regularizer", "constraint"):
            if not _same(getattr(one, role), getattr(two, role), one):
                raise _differ(model, f"in a copy, {one.path} has another {role}")
    with tf.device("CPU:0"), unchanged(model):
        try:
            expected = _values(model, inputs)
        except Exception:  # whatever the user's layers raise; the engines say it
            return
        try:
            found = _values(copied, inputs)
        except Exception as error:  # whatever the user's layers raise
            raise _differ(model, f"a copy fails: {said(error)}") from error
        if _near(expected, found) or not _near(expected, _values(model, inputs)):
            return
        raise _differ(model, f"in a copy, {_culprit(model, copied, inputs)} computes other values")


def _values(model: keras.Model, inputs: Any) -> list[tf.Tensor]:
    """The outputs, and the penalties of the model; without what is no dense tensor."""
    outputs = tf.nest.flatten(model(inputs, training=False))
    return [each for each in [*outputs, *model.losses] if isinstance(each, tf.Tensor)]


@contextlib.contextmanager
def unchanged(model: keras.Model) -> Iterator[None]:
    """Keeps the state of a model, such as counters, which are no weights to train."""
    state = [(each, tf.identity(each)) for each in model.non_trainable_variables]
    try:
        yield
    finally:
        for variable, value in state:
            variable.assign(value)


def _near(some: list[tf.Tensor], others: list[tf.Tensor]) -> bool:
    return len(some) == len(others) and all(map(_are_near, some, others))


def _are_near(one: tf.Tensor, two: tf.Tensor) -> bool:
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
        return _are_near(expected, tf.convert_to_tensor(two(values)))
    except Exception:  # whatever the user's code raises
        return False


def _culprit(model: keras.Model, copied: keras.Model, inputs: Any) -> str:
    """The first layer of a functional model that computes other values; else the model."""
    for one, two in zip(model.layers, copied.layers, strict=False):
        try:
            some, others = (
                _values(keras.Model(whole.inputs, layer.output), inputs)
                for whole, layer in ((model, one), (copied, two))
            )
        except Exception:  # of a layer without a place of its own in the graph
            continue
        if not _near(some, others):
            return f"the {type(one).__name__} {one.name}"
    return f"the {type(model).__name__}"


def _differ(model: keras.Model, problem: str) -> SettingError:
    return SettingError(
        "train.model",
        model.name,
        f"cannot be built again from its configuration: {problem}",
        "a get_config that returns all that its class needs, or a function that builds the model",
    )
