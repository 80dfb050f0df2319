"""A loss as ``compile`` of Keras takes it, as a value for each example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from stagecraft.objects.keras_names import kind_of, name_of, near
from stagecraft.schemas import user_objects
from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module.models.layers.scope import floatx

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
