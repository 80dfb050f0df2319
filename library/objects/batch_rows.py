"""Whether a row of a batch depends on the other rows, so that copies that fill a batch count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft import process_state
from stagecraft.objects.equality import are_near
from stagecraft.trainer_module.models.stages import inputs as model_inputs

_COMMON, _ROWS = 2, 8
"""Rows that two compared batches have in common, of all their rows."""

_SPREAD = 0.1
"""Standard deviation of what is added to the weights: a weight of 0 could hide a dependence."""


def dependence(
    model: keras.Model, inputs: Any, losses: Callable[[Any], Any], *, training: bool
) -> str:
    """The first part of a model or its loss that depends on all rows of a batch; empty: none.

    In a training step, these are moving statistics and added losses. There and in an evaluation,
    this function compares outputs and losses of two rows within two batches whose other rows
    differ. Inputs are random, and so is an addition to the weights.

    Args:
        inputs: ``Spec`` of the inputs, or a structure of them.
        losses: from the outputs of ``n`` examples to ``[n]``.
    """
    if training and (found := _added(model, inputs)):
        return found
    draw = np.random.default_rng(0)
    noise = [_SPREAD * draw.standard_normal(each.shape) for each in model.trainable_variables]
    specs = tf.nest.map_structure(
        lambda spec: tf.TensorSpec(model_inputs.zeros(spec, _ROWS).shape, spec.dtype), inputs
    )
    # Greater rows, so that a maximum over the batch is another one.
    some, others = (model_inputs.noise(specs, draw, scale) for scale in (1.0, 4.0))
    mixed = tf.nest.map_structure(
        lambda a, b: tf.concat([a[:_COMMON], b[_COMMON:]], axis=0), some, others
    )
    (outputs, loss), (other_outputs, other_loss) = (
        _computed(model, noise, each, losses, training) for each in (some, mixed)
    )
    if not all(map(are_near, outputs, other_outputs)):
        return "the output of the model"
    return "" if are_near(loss, other_loss) else "the loss"


def _added(model: keras.Model, inputs: Any) -> str:
    """The path of a moving statistic, or what adds a loss."""
    state = [v for v in model.non_trainable_variables if "float" in str(v.dtype)]
    every = [(v, v.value) for v in model.variables]
    zeros = tf.nest.map_structure(lambda spec: model_inputs.zeros(spec, 2), inputs)
    with keras.StatelessScope(every, collect_losses=True) as scope:
        model(zeros, training=True)
        losses = len(model.losses)
    changed = [v.path for v in state if scope.get_current_value(v) is not v.value]
    weights = sum(v.regularizer is not None for v in model.trainable_weights)
    return [*changed, "add_loss or activity_regularizer" if losses > weights else ""][0]


def _computed(
    model: keras.Model,
    noise: list[np.ndarray],
    inputs: Any,
    losses: Callable[[Any], Any],
    training: bool,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Outputs and losses of the common rows; random numbers are the same in each call."""
    weights = [
        (weight, weight.value + tf.cast(added, weight.dtype))
        for weight, added in zip(model.trainable_variables, noise, strict=True)
    ]
    with process_state.restored():
        tf.random.set_seed(0)
        with keras.StatelessScope(weights):
            outputs = model(inputs, training=training)
        loss = losses(outputs)
    dense = [each for each in tf.nest.flatten(outputs) if isinstance(each, tf.Tensor)]
    return [each[:_COMMON] for each in dense], loss[:_COMMON]
