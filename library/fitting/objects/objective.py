"""Losses and metrics of Keras, as values for each example."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module.data.tasks.metric import Metric
from stagecraft.trainer_module.models.layers.scope import floatx

_ACCURACY = ("accuracy", "acc")
_ENTROPY = ("crossentropy", "ce")


class Output(NamedTuple):
    """An output of the model."""

    name: str
    """Empty if the model has one output."""
    target: Any
    value: Any


def outputs_of(targets: Any, outputs: Any, names: Sequence[str]) -> list[Output]:
    """Pairs targets and outputs, by key or by place.

    Args:
        names: of the outputs of a functional model.

    Raises:
        SettingError: there is not one target for each output.
    """
    if isinstance(outputs, Mapping):
        found = dict(outputs)
    elif isinstance(outputs, (list, tuple)):
        keys = names if len(names) == len(outputs) else [f"output_{i}" for i in range(len(outputs))]
        found = dict(zip(keys, outputs, strict=True))
    else:
        found = {names[0] if names else "": outputs}
    if isinstance(targets, Mapping):
        given = dict(targets)
    elif isinstance(targets, (list, tuple)):
        given = dict(zip(found, targets, strict=False)) if len(targets) == len(found) else {}
    else:
        given = dict.fromkeys(list(found)[:1], targets)
    if given.keys() != found.keys():
        raise SettingError(
            "y",
            ", ".join(map(str, given)) or "the structure",
            f"does not fit the model's outputs ({', '.join(found)})",
            "one array for each output, by its name or in the same order",
        )
    if len(found) == 1:
        [(key, value)] = found.items()
        return [Output("", given[key], value)]
    return [Output(key, given[key], value) for key, value in found.items()]


def by_output(given: Any, output: Output, place: int, alone: bool) -> Any:
    """The part of an argument (``loss`` or ``metrics``) for one output."""
    if isinstance(given, Mapping):
        return given.get(output.name) if output.name else next(iter(given.values()), None)
    if isinstance(given, (list, tuple)) and not alone:
        return given[place] if place < len(given) else None
    return given


def check_loss(loss: Any) -> None:
    """Refuses losses that are no mean over the examples.

    Raises:
        SettingError: as said, or Keras does not know the loss.
    """
    leaves = loss.values() if isinstance(loss, Mapping) else loss
    for each in leaves if isinstance(loss, (Mapping, list, tuple)) else [loss]:
        if each is None and isinstance(loss, (Mapping, list, tuple)):
            continue
        found = _loss(each, None, None)
        if found.reduction != "sum_over_batch_size":
            raise SettingError(
                "loss",
                found.name,
                f"has reduction={found.reduction!r}, which differs between parts of a batch",
                "reduction='sum_over_batch_size', Keras's default",
            )


def losses(loss: Any, found: Sequence[Output], dtype: Any, weights: Any) -> Any:
    """The loss of each example, ``[batch]``, summed over the outputs.

    Args:
        weights: of the examples, ``[batch, …]``; None: 1.
    """
    alone, parts = len(found) == 1, []
    for place, output in enumerate(found):
        own = by_output(loss, output, place, alone and not isinstance(loss, (list, tuple)))
        if own is None:
            continue
        target, value = _cast(output.target, dtype), _cast(output.value, dtype)
        with floatx(dtype.name):
            values = _loss(own, output.target, output.value).call(target, value)
        values = tf.cast(values, dtype)
        if not values.shape.rank:
            raise SettingError(
                "loss",
                _named(own),
                "returns one number for the batch, but parts of a batch must add up",
                "a loss that returns [batch, …], one value for each example",
            )
        if weights is not None:
            own_weights = tf.cast(weights, dtype)
            missing = values.shape.rank - own_weights.shape.rank
            values *= tf.reshape(own_weights, [*tf.unstack(tf.shape(own_weights)), *[1] * missing])
        parts.append(tf.reduce_mean(values, axis=list(range(1, values.shape.rank))))
    return tf.add_n(parts)


class OfKeras(Metric):
    """A metric of Keras that is the mean of a value for each example."""

    size = 2

    def __init__(self, given: Any, output: str, find: Callable[[Any, Any], Output]):
        """Checks the metric.

        Args:
            given: name, object or function, as ``keras.Model.compile`` accepts it.
            output: name of the model's output; empty: it has one.
            find: maps targets and outputs to those of this output.

        Raises:
            SettingError: Keras does not know the metric, or it is no such mean.
        """
        self._find = find
        is_accuracy = isinstance(given, str) and given in _ACCURACY
        self._values = None if is_accuracy else _values(given)
        self.name = f"{output}_{_named(given)}" if output else _named(given)

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """``[value, 1]`` of each example."""
        output = self._find(targets, outputs)
        compute = self._values
        if compute is None:
            compute = getattr(keras.metrics, _kind("_accuracy", output.target, output.value))
        with floatx(dtype.name):
            values = compute(output.target, output.value)
        values = tf.cast(values, dtype)
        if not values.shape.rank:
            raise SettingError(
                "metrics",
                self.name,
                "returns one number for the batch",
                "a metric that returns [batch, …], one value for each example",
            )
        values = tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))
        return tf.stack([values, tf.ones_like(values)], axis=1)

    def sums(self, outputs: Any, targets: Any, weights: Any, dtype: Any) -> Any:
        """Sums over the examples that are no padding, as Keras: without the sample weights."""
        return super().sums(outputs, targets, tf.cast(weights > 0, dtype), dtype)

    def result(self, sums: Any) -> float:
        """The mean; 0 without examples."""
        total, count = sums
        return float(total / count) if count else 0.0


class RowCount(Metric):
    """The number of examples, without padding."""

    name = "row_count"
    size = 1

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """1 for each example."""
        return tf.ones([tf.shape(tf.nest.flatten(outputs)[0])[0], 1], dtype)

    def sums(self, outputs: Any, targets: Any, weights: Any, dtype: Any) -> Any:
        """Counts the examples."""
        return tf.reduce_sum(tf.cast(weights > 0, dtype))[tf.newaxis]

    def result(self, sums: Any) -> float:
        """The number."""
        return float(sums[0])


def _loss(given: Any, target: Any, value: Any) -> Any:
    """Keras's object; without a target, the one that ``crossentropy`` means does not matter."""
    if given in _ENTROPY if isinstance(given, str) else False:
        given = _kind("_crossentropy", target, value)
    try:
        found = keras.losses.get(given)
        if isinstance(found, type):
            found = found()
    except (TypeError, ValueError) as error:
        raise SettingError("loss", given, f"is refused by Keras: {said(error)}") from error
    if isinstance(found, keras.losses.Loss):
        return found
    if not callable(found):
        raise SettingError(
            "loss", given, "is not a loss", "a name, a keras Loss, or a function of y and outputs"
        )
    return _Wrapper(found, name=_named(given))


def _values(given: Any) -> Callable[[Any, Any], Any]:
    """The function of a metric, of targets and outputs."""
    try:
        found = keras.metrics.get(given)
        if isinstance(found, type):
            found = found()
    except (TypeError, ValueError) as error:
        raise SettingError("metrics", given, f"is refused by Keras: {said(error)}") from error
    if not isinstance(found, keras.metrics.Metric) and callable(found):
        return found
    kind, wrapper = type(found), keras.metrics.MeanMetricWrapper
    if (
        not isinstance(found, wrapper)
        or kind.update_state is not wrapper.update_state
        or kind.result is not wrapper.result
    ):
        raise SettingError(
            "metrics",
            _named(given),
            "is not the mean of a value for each example, so parts of a batch do not add up",
            "a metric such as accuracy or mean_absolute_error, and compute this one from "
            "model.predict after the training",
        )
    return functools.partial(found._fn, **found._fn_kwargs)


def _kind(suffix: str, target: Any, value: Any) -> str:
    """Keras's choice between binary, categorical and sparse, by the shapes."""
    if target is None or value.shape[-1] == 1:
        return f"binary{suffix}"
    ranks = target.shape.rank < value.shape.rank
    return (
        f"sparse_categorical{suffix}" if ranks or target.shape[-1] == 1 else f"categorical{suffix}"
    )


def _named(given: Any) -> str:
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    return str(name or type(given).__name__)


def _cast(value: Any, dtype: Any) -> Any:
    return value if value.dtype == tf.string else tf.cast(value, dtype)


_Wrapper: Any = next(
    kind for kind in keras.losses.MeanSquaredError.__mro__ if kind.__name__ == "LossFunctionWrapper"
)
"""Keras does not export it; it brings targets and outputs to one rank."""
