"""Arguments of Keras's ``compile`` for each example: a loss, and metrics that add up over parts."""

from __future__ import annotations

import difflib
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from stagecraft.common import user_objects
from stagecraft.common.errors import SettingError, said
from stagecraft.trainer_module.data.tasks.kinds.binary_classification import AUC
from stagecraft.trainer_module.data.tasks.metric import Mean, Metric
from stagecraft.trainer_module.models.layers.random_state import floatx


def kind_of(target: Any, value: Any) -> str:
    """Keras's choice between ``binary``, ``categorical`` and ``sparse_categorical``, by shapes."""
    if target is None or value.shape[-1] == 1:
        return "binary"
    is_sparse = target.shape.rank < value.shape.rank or target.shape[-1] == 1
    return "sparse_categorical" if is_sparse else "categorical"


def near(module: types.ModuleType, given: Any, *more: str) -> str:
    """The public name of a Keras module that is like an unknown one; "": there is none.

    Args:
        more: other names.
    """
    if not isinstance(given, str):
        return ""
    public = (name for name in vars(module) if not name.startswith("_"))
    known = {name.lower(): name for name in (*public, *_SHORT, *more)}
    found = difflib.get_close_matches(given.lower(), known, n=1)
    return known[found[0]] if found else ""


def name_of(given: Any) -> str:
    """The name of a loss or metric as ``compile`` takes it: name, object or function."""
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    return str(name or type(given).__name__)


_ENTROPY = ("crossentropy", "ce")


def check_loss(loss: Any) -> None:
    """Refuses a loss that is no mean over the examples.

    Raises:
        SettingError: as said, or Keras does not know the loss.
    """
    found = _loss(_single("task.loss", loss), None, None)
    if found.reduction != "sum_over_batch_size":
        raise SettingError(
            "task.loss",
            found.name,
            f"has reduction={found.reduction!r}, which differs between parts of a batch",
            "reduction='sum_over_batch_size', Keras's default",
        )


def losses(loss: Any, targets: Any, outputs: Any, dtype: Any) -> Any:
    """The loss of each example, ``[batch]``.

    Args:
        loss: as in ``compile``, for the only output of a model.

    Raises:
        SettingError: the loss does not fit.
    """
    loss, output = _single("task.loss", loss), _single("y", outputs)
    target, value = _cast(targets, dtype), _cast(output, dtype)
    with floatx(dtype.name):
        values = _loss(loss, targets, output).call(target, value)
    if getattr(values, "_keras_mask", None) is not None:  # set by ignore_class
        raise SettingError(
            "task.loss",
            name_of(loss),
            "excludes values from its mean, and parts of a batch have different numbers of them",
            "a loss without ignore_class, and a sample_weight of 0 for these examples",
        )
    values = tf.cast(values, dtype)
    if not values.shape.rank:
        raise SettingError(
            "task.loss",
            name_of(loss),
            "returns one number for the batch, but parts of a batch must add up",
            "a loss that returns [batch, …], one value for each example",
        )
    return tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))


def _single(argument: str, given: Any) -> Any:
    """The value, or the only one of a structure."""
    if not isinstance(given, (Mapping, list, tuple)):
        return given
    parts = list(given.values()) if isinstance(given, Mapping) else list(given)
    if len(parts) != 1:
        problem = "are not one, but the task has one label"
        raise SettingError(argument, f"{len(parts)} parts", problem, "a model with one output")
    return parts[0]


def _loss(given: Any, target: Any, value: Any) -> Any:
    """Keras's object; without a target, the one that ``crossentropy`` means does not matter."""
    if given in _ENTROPY if isinstance(given, str) else False:
        given = f"{kind_of(target, value)}_crossentropy"
    if isinstance(given, str) and user_objects.is_name(given):
        given = user_objects.load("task.loss", given)
    try:
        found = keras.losses.get(given)
        if isinstance(found, type):
            found = found()
    except (TypeError, ValueError) as error:
        use = near(keras.losses, given, *_ENTROPY)
        problem = "does not exist" if use else f"is refused by Keras: {said(error)}"
        raise SettingError("task.loss", given, problem, use) from error
    if isinstance(found, keras.losses.Loss):
        if type(found).__call__ is not keras.losses.Loss.__call__:
            problem = "overrides __call__, which is for whole batches"
            use = "a class that overrides call alone, which returns [batch, …]"
            raise SettingError("task.loss", found.name, problem, use)
        if found.dtype in ("float16", "bfloat16"):
            problem = f"has dtype={found.dtype}, but losses have the dtype of the training"
            raise SettingError("task.loss", found.name, problem, "no dtype")
        return found
    if not callable(found):
        use = "a name, a keras Loss, or a function of y and outputs"
        raise SettingError("task.loss", given, "is not a loss", use)
    return _Wrapper(found, name=name_of(given))


def _cast(value: Any, dtype: Any) -> Any:
    return value if value.dtype == tf.string else tf.cast(value, dtype)


_Wrapper: Any = next(
    kind for kind in keras.losses.MeanSquaredError.__mro__ if kind.__name__ == "LossFunctionWrapper"
)
"""Keras does not export it; it brings targets and outputs to one rank."""


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


def metric(value: Any) -> Metric:
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
