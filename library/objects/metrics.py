"""Metrics as ``compile`` of Keras takes them, as sums that parts of a batch add up."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from stagecraft.objects.keras_names import kind_of, name_of, near
from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module.data.tasks.metric import Mean, Metric
from stagecraft.trainer_module.data.tasks.tables.binary_classification import AUC
from stagecraft.trainer_module.models.layers.scope import floatx

_ACCURACY = ("accuracy", "acc")

_SHORT = {
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "mse": "mean_squared_error",
    "msle": "mean_squared_logarithmic_error",
}
"""Keras's abbreviations."""

_HIGHER = ("accuracy", "cosine_similarity")
"""Parts of the names of metrics of which more is better; Keras's others are errors and losses."""


def made(value: Any) -> Metric:
    """A metric from what ``compile`` takes.

    Args:
        value: a name, such as ``accuracy``, ``auc`` (of probabilities) or ``mae``; a function of
            targets and outputs; a class or an object of ``keras.metrics`` that is a mean; a
            ``keras.losses.Loss``; or a ``Metric``.

    Raises:
        SettingError: Keras does not know the metric, or it is not a mean over examples.
    """
    if isinstance(value, Metric):
        return value
    if isinstance(value, str) and value.lower() == "auc":
        return _ProbabilityAUC()
    if isinstance(value, type) and issubclass(value, (keras.metrics.Metric, keras.losses.Loss)):
        value = _object(value)
    if isinstance(value, str) and value.lower() in _ACCURACY:
        value = value.lower()
    compute = _accuracy if isinstance(value, str) and value in _ACCURACY else _function(value)
    function = getattr(compute, "func", compute)
    higher = any(part in name_of(function) for part in _HIGHER)
    return _KerasMean(name_of(value), functools.partial(_values, compute), higher_is_better=higher)


class _KerasMean(Mean):
    """A mean that is 0 without examples, as in Keras."""

    def result(self, sums: Any) -> float:
        """The quotient, or 0."""
        return super().result(sums) if sums[1] else 0.0


def _object(kind: type) -> Any:
    try:
        return kind()
    except TypeError as error:
        problem = f"cannot be made without arguments: {said(error)}"
        raise SettingError("task.metrics", kind.__name__, problem, "an object") from error


def _function(value: Any) -> Callable[[Any, Any], Any]:
    """The function of a metric, of targets and outputs."""
    if isinstance(value, keras.losses.Loss):
        return value.call
    if isinstance(value, str):
        # An object of Keras has variables, which start TensorFlow: too early in a worker.
        found = getattr(keras.metrics, _SHORT.get(value, value), None)
        if inspect.isfunction(found) and found.__module__.startswith("keras"):
            return found
    try:
        found = keras.metrics.get(value)
        if isinstance(found, type):
            found = found()
    except (TypeError, ValueError) as error:
        use = near(keras.metrics, value, "auc", *_ACCURACY)
        problem = "does not exist" if use else f"is refused by Keras: {said(error)}"
        raise SettingError("task.metrics", value, problem, use) from error
    if not isinstance(found, keras.metrics.Metric) and callable(found):
        return found
    kind, wrapper = type(found), keras.metrics.MeanMetricWrapper
    if (
        not isinstance(found, wrapper)
        or kind.update_state is not wrapper.update_state
        or kind.result is not wrapper.result
        or kind.reset_state is not wrapper.reset_state
    ):
        raise SettingError(
            "task.metrics",
            name_of(value),
            "is not the mean of a value for each example, so parts of a batch do not add up",
            "a metric such as accuracy or mean_absolute_error, and compute this one from "
            "model.predict after the training",
        )
    return functools.partial(found._fn, **found._fn_kwargs)


def _values(compute: Callable[[Any, Any], Any], outputs: Any, targets: Any) -> Any:
    if outputs.shape.rank == targets.shape.rank + 1 and outputs.shape[-1] == 1:
        targets = targets[..., tf.newaxis]  # otherwise they broadcast: [batch, batch]
    with floatx(outputs.dtype.name if outputs.dtype.is_floating else "float32"):
        values = tf.convert_to_tensor(compute(targets, outputs))
    if not values.shape.rank:
        raise SettingError(
            "task.metrics",
            name_of(getattr(compute, "func", compute)),
            "returns one number for the batch, but parts of a batch must add up",
            "a metric that returns [batch, …], one value for each example",
        )
    return values


def _accuracy(targets: Any, outputs: Any) -> Any:
    """The accuracy that ``compile`` chooses by the shapes."""
    return getattr(keras.metrics, f"{kind_of(targets, outputs)}_accuracy")(targets, outputs)


class _ProbabilityAUC(AUC):
    """The area under the ROC curve of probabilities ``[batch, 1]``."""

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """See :class:`AUC`, which wants logits."""
        small = 1e-7
        shares = tf.clip_by_value(tf.cast(outputs, dtype), small, 1 - small)
        logits = tf.math.log(shares) - tf.math.log1p(-shares)
        return super().terms(logits, tf.reshape(targets, [-1]), dtype)
