"""A Keras model that is a ``model_fn``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.estimator import refusals
from stagecraft.estimator.replay import Weights
from stagecraft.estimator.spec import EstimatorSpec, ModeKeys
from stagecraft.schemas.errors import UserError

WEIGHTS = "_weights"
"""Input with the weights of the examples, which are 0 for padding."""


class ModelFnModel(keras.Model):
    """Maps features, labels and weights to losses, metrics and predictions.

    The outputs are a dictionary: ``losses`` ``[batch]``; ``metrics``, a dictionary of ``[batch]``;
    and, in inference, ``predictions``, a dictionary of ``[batch, …]``. The loss of a batch counts
    as the loss of each of its examples, so that the losses of parts of a batch add up.
    """

    means_of_batch = ("losses", "metrics")

    def __init__(
        self,
        model_fn: Callable[..., Any],
        params: Mapping[str, Any],
        label: str,
        metrics: tuple[str, ...],
        specs: Mapping[str, Any],
    ):
        """``specs``: shape and dtype of each input, without the batch."""
        super().__init__(name="model_fn")
        self._model_fn, self._params = model_fn, dict(params)
        self._label, self._metric_names, self._specs = label, metrics, dict(specs)
        self.fn_layers: list[Any] = []
        self.fn_variables: list[keras.Variable] = []
        self._fn_weights = Weights(self.fn_layers.append, self._variable)

    def build(self, input_shape: Any) -> None:
        """Creates the weights: runs ``model_fn`` in each mode."""
        draw = np.random.default_rng(0)
        rows = {name: _noise(spec, draw) for name, spec in self._specs.items()}
        dtype = keras.config.floatx()
        rows = {
            name: tf.cast(value, dtype) if value.dtype.is_floating else value
            for name, value in rows.items()
        }
        rows.pop(WEIGHTS)
        labels = rows.pop(self._label)
        with refusals.explained():
            spec = self._run(ModeKeys.EVAL, rows, labels)
            refusals.check_metrics(spec.eval_metric_ops or {}, self._metric_names)
            in_training = self._run(ModeKeys.TRAIN, rows, labels).eval_metric_ops
            refusals.check_metrics(in_training or spec.eval_metric_ops or {}, self._metric_names)
            self._run(ModeKeys.PREDICT, rows, None)
            self._fn_weights.complete = True
            for mode in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT):
                refusals.check_graph(self._traced(mode, rows, labels))
        self._check_mean(spec, rows, labels)

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        """Runs ``model_fn`` once or twice."""
        features = dict(inputs)
        weights, labels = features.pop(WEIGHTS), features.pop(self._label)
        if training:
            spec = self._run(ModeKeys.TRAIN, features, labels)
            measured = spec
            if self._metric_names and not spec.eval_metric_ops:
                measured = self._run(ModeKeys.EVAL, features, labels)
            return {
                "losses": _of_each(spec.loss, weights),
                "metrics": self._measured(measured, weights),
            }
        known = tf.reshape(weights, [-1]) > 0
        real = {name: tf.boolean_mask(value, known) for name, value in features.items()}
        spec = self._run(ModeKeys.EVAL, real, tf.boolean_mask(labels, known))
        predictions = self._run(ModeKeys.PREDICT, features, None).predictions
        if not isinstance(predictions, Mapping):
            predictions = {"predictions": predictions}
        return {
            "losses": _padded(spec.loss, known),
            "metrics": {
                name: _padded(value, known) for name, value in self._measured(spec).items()
            },
            "predictions": dict(predictions),
        }

    def _measured(self, spec: EstimatorSpec, weights: Any = None) -> dict[str, Any]:
        found = spec.eval_metric_ops or {}
        return {
            name: found[name] if weights is None else _of_each(found[name], weights)
            for name in self._metric_names
        }

    def _run(self, mode: str, features: Mapping[str, Any], labels: Any) -> EstimatorSpec:
        with self._fn_weights.run(mode):
            spec = refusals.call(self._model_fn, dict(features), labels, mode, self._params)
        return refusals.checked(spec, mode)

    def _traced(self, mode: str, features: Mapping[str, Any], labels: Any) -> Any:
        """The graph of ``model_fn`` in a mode; ops have the devices that it chose."""

        def run(features: Mapping[str, Any], labels: Any) -> Any:
            predicts = mode == ModeKeys.PREDICT
            with tf.device(None):
                spec = self._run(mode, features, None if predicts else labels)
            return spec.predictions if predicts else spec.loss

        function = tf.function(run, autograph=False)
        return function.get_concrete_function(features, labels).graph

    def _variable(self, path: str, value: Any, trainable: bool) -> keras.Variable:
        *scopes, name = path.split("/")
        dtype = value.dtype.name
        if dtype == "float32":
            dtype = keras.config.floatx()

        def initial(shape: Any, dtype: Any = None) -> Any:
            return tf.cast(value, dtype)

        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            variable = keras.Variable(
                initial, shape=tuple(value.shape), dtype=dtype, trainable=trainable, name=name
            )
        self.fn_variables.append(variable)
        return variable

    def _check_mean(self, spec: EstimatorSpec, rows: Mapping[str, Any], labels: Any) -> None:
        """Refuses a loss that is a sum over the batch: its parts would add up to another one."""
        if tf.convert_to_tensor(spec.loss).shape.rank:
            return
        twice = {name: tf.repeat(value, 2, axis=0) for name, value in rows.items()}
        again = self._run(ModeKeys.EVAL, twice, tf.repeat(labels, 2, axis=0)).loss
        if not np.allclose(again, spec.loss, rtol=1e-3, atol=1e-6):
            raise UserError(
                f"model_fn: the loss of a batch changes from {float(spec.loss):g} to "
                f"{float(again):g} if each example occurs twice; return the mean over the batch, "
                "or the loss of each example, [batch]",
                setting="train.model",
                value="loss",
            )


def _noise(spec: Any, draw: np.random.Generator) -> tf.Tensor:
    shape = (3, *(size or 1 for size in spec.shape))
    dtype = tf.as_dtype(spec.dtype)
    if dtype.is_floating:
        return tf.constant(draw.uniform(0, 1, shape), dtype)
    return tf.zeros(shape, dtype)


def _of_each(value: Any, weights: Any) -> Any:
    """``[batch]``: the values of the examples, or the value of the batch for each."""
    value = tf.convert_to_tensor(value)
    if value.shape.rank:
        return value
    return tf.fill(tf.shape(weights)[:1], value)


def _padded(value: Any, known: Any) -> Any:
    """Values of the examples that are known, or of all of them together; 0 for padding."""
    value = tf.convert_to_tensor(value)
    if value.shape.rank:
        return tf.scatter_nd(tf.where(known), value, tf.shape(known, tf.int64))
    # The mean of no examples is not a number.
    return tf.where(known, value, tf.zeros_like(value))
