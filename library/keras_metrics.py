"""Metrics as ``compile`` of Keras takes them, as sums that parts of a batch add up."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.data.tasks import metric
from stagecraft.trainer_module.data.tasks.metric import Metric
from stagecraft.trainer_module.data.tasks.tables.binary_classification import AUC

_SHORT = {
    "acc": "accuracy",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "mse": "mean_squared_error",
    "msle": "mean_squared_logarithmic_error",
}
"""Keras's own abbreviations."""

_HIGHER = ("accuracy", "cosine_similarity")
"""Parts of the names of metrics of which more is better; Keras's others are errors and losses."""


def made(value: Any) -> Metric:
    """A metric from what ``compile`` takes.

    Args:
        value: a name, such as ``accuracy``, ``auc`` (of probabilities) or ``mae``; a function of
            targets and outputs; an object of ``keras.metrics`` that is a mean; or a ``Metric``.

    Raises:
        SettingError: it is none of these.
    """
    if isinstance(value, Metric):
        return value
    if isinstance(value, str):
        return _named(value)
    if callable(getattr(value, "_fn", None)):  # keras.metrics.MeanMetricWrapper
        function = functools.partial(value._fn, **getattr(value, "_fn_kwargs", {}))
        return _mean(value.name, function, getattr(value._fn, "__name__", ""))
    if inspect.isfunction(value):
        return _mean(value.__name__, value)
    raise SettingError(
        "task.metrics",
        getattr(value, "name", value),
        "is not a mean over examples, so parts of a batch do not add up to it",
        "accuracy, auc, or a stagecraft.Metric",
    )


def _named(name: str) -> Metric:
    if name.lower() == "auc":
        return _ProbabilityAUC()
    if _SHORT.get(name, name) == "accuracy":
        return _mean(name, _accuracy)
    import keras

    function = getattr(keras.metrics, _SHORT.get(name, name), None)
    if not inspect.isfunction(function):
        functions = [key for key, each in vars(keras.metrics).items() if inspect.isfunction(each)]
        use = f"one of accuracy, auc, {', '.join(sorted(functions))}"
        raise SettingError("task.metrics", name, "is not a metric of one example", use)
    return _mean(name, function)


def _mean(name: str, function: Callable[[Any, Any], Any], kind: str = "") -> Metric:
    kind = kind or _SHORT.get(name, name)
    higher = any(part in kind for part in _HIGHER)
    return metric.Mean(name, functools.partial(_values, function), higher_is_better=higher)


def _values(function: Callable[[Any, Any], Any], outputs: Any, targets: Any) -> Any:
    import tensorflow as tf

    if outputs.shape.rank == targets.shape.rank + 1 and outputs.shape[-1] == 1:
        targets = targets[..., tf.newaxis]  # otherwise they broadcast: [batch, batch]
    return tf.convert_to_tensor(function(targets, outputs))


def _accuracy(targets: Any, outputs: Any) -> Any:
    """The accuracy that ``compile`` chooses by the shapes."""
    import keras

    if outputs.shape[-1] == 1:
        return keras.metrics.binary_accuracy(targets, outputs)
    if targets.shape.rank == outputs.shape.rank and targets.shape[-1] == outputs.shape[-1]:
        return keras.metrics.categorical_accuracy(targets, outputs)
    return keras.metrics.sparse_categorical_accuracy(targets, outputs)


class _ProbabilityAUC(AUC):
    """The area under the ROC curve of probabilities ``[batch, 1]``."""

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """See :class:`AUC`, which wants logits."""
        import tensorflow as tf

        small = 1e-7
        shares = tf.clip_by_value(tf.cast(outputs, dtype), small, 1 - small)
        logits = tf.math.log(shares) - tf.math.log1p(-shares)
        return super().terms(logits, tf.reshape(targets, [-1]), dtype)
