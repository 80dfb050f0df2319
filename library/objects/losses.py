"""Losses as ``compile`` of Keras takes them, as values for each example."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.objects.keras_names import kind_of, name_of, near
from stagecraft.schemas import user_objects
from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module.models.layers.scope import floatx

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


def check_outputs(argument: str, given: Any, names: Sequence[str]) -> None:
    """Refuses a part of ``loss`` or ``metrics`` for an output that the model lacks.

    Args:
        names: of the outputs; "" or nothing: not known.

    Raises:
        SettingError: a key is no output's name, or a list has another length than the outputs.
    """
    known = [name for name in names if name]
    if isinstance(given, Mapping) and known:
        for key in given:
            if key not in known:
                problem = f"is no output of the model, which has {', '.join(known)}"
                alike = difflib.get_close_matches(str(key), known, n=1)
                raise SettingError(argument, key, problem, " or ".join(alike or known))
    elif isinstance(given, Mapping) and len(given) > len(names) == 1:
        problem = "are more than the model's only output"
        raise SettingError(argument, " and ".join(map(str, given)), problem, "one of them")
    elif isinstance(given, (list, tuple)) and given and len(names) > 1 and len(given) != len(names):
        problem = f"do not fit the {len(names)} outputs ({', '.join(known)})"
        use = "a dictionary by output, or a list with one part for each"
        raise SettingError(argument, f"{len(given)} parts", problem, use)


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
                "task.loss",
                found.name,
                f"has reduction={found.reduction!r}, which differs between parts of a batch",
                "reduction='sum_over_batch_size', Keras's default",
            )


def losses(loss: Any, found: Sequence[Output], dtype: Any, weights: Any) -> Any:
    """The loss of each example, ``[batch]``, summed over the outputs.

    Args:
        weights: of the examples, ``[batch, …]``, or such for each output; None: 1.

    Raises:
        SettingError: a loss or weights do not fit.
    """
    check_outputs("task.loss", loss, [output.name for output in found])
    alone, parts = len(found) == 1, []
    for place, output in enumerate(found):
        own = by_output(loss, output, place, alone and not isinstance(loss, (list, tuple)))
        if own is None:
            continue
        target, value = _cast(output.target, dtype), _cast(output.value, dtype)
        with floatx(dtype.name):
            values = _loss(own, output.target, output.value).call(target, value)
        if getattr(values, "_keras_mask", None) is not None:  # set by ignore_class
            raise SettingError(
                "task.loss",
                name_of(own),
                "excludes values from its mean, and parts of a batch have different numbers of "
                "them",
                "a loss without ignore_class, and a sample_weight of 0 for these examples",
            )
        values = tf.cast(values, dtype)
        if not values.shape.rank:
            raise SettingError(
                "task.loss",
                name_of(own),
                "returns one number for the batch, but parts of a batch must add up",
                "a loss that returns [batch, …], one value for each example",
            )
        own_weights = by_output(weights, output, place, alone)
        if own_weights is not None:
            values *= _fitting(tf.cast(own_weights, dtype), values)
        parts.append(tf.reduce_mean(values, axis=list(range(1, values.shape.rank))))
    return tf.add_n(parts)


def _fitting(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The weights with as many axes as the values; a last axis of 1 is dropped, as Keras does."""
    missing = values.shape.rank - weights.shape.rank
    if missing == -1 and weights.shape[-1] == 1:
        return tf.squeeze(weights, -1)
    if missing < 0:
        raise SettingError(
            "sample_weight",
            f"shape {tuple(weights.shape)}",
            f"does not fit the losses, whose shape is {tuple(values.shape)}",
            "one weight for each example, [examples]",
        )
    return tf.reshape(weights, [*tf.unstack(tf.shape(weights)), *[1] * missing])


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
