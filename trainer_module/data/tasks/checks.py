"""Checks of what a task is given, and of what it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from stagecraft.common.errors import SettingError, UserError

ClassWeights = Mapping[str, float] | Sequence[float]
"""Factors of the training's loss: in the order of the classes, also an array; or by name, 1 for
other classes."""


def class_weights(given: Any, count: int | None = None) -> ClassWeights | None:
    """Checks ``task.args.class_weights``; ``count``: of the classes, None if unknown.

    Raises:
        SettingError: they are neither a mapping nor a list, a weight is no number of 0 or more, or
            there is another number of weights.
    """
    if given is None:
        return None
    setting = "task.args.class_weights"
    of_type(setting, given, Iterable, "are no weights", "[1, 3]")
    values = list(given.values() if isinstance(given, Mapping) else given)
    if not isinstance(given, Mapping) and len(values) != (count or len(values)):
        raise SettingError(setting, given, f"are not {count} weights", str([1] * (count or 2)))
    if not all(isinstance(each, Real) and float(each) >= 0 for each in values):
        raise SettingError(setting, given, "are not numbers of 0 or more", "[1, 3]")
    weights: ClassWeights = given if isinstance(given, Mapping) else values
    return weights


def of_type(setting: str, value: Any, kind: Any, problem: str, use: str) -> None:
    """Checks the type of an argument, which may come from YAML.

    Raises:
        SettingError: the value is no ``kind``.
    """
    if not isinstance(value, kind):
        raise SettingError(setting, value, problem, use)


def whole(setting: str, value: Any, least: int) -> None:
    """Checks that an argument is a whole number of ``least`` or more.

    Raises:
        SettingError: it is not.
    """
    if not isinstance(value, int) or value < least:
        problem = f"is not a whole number of {least} or more"
        raise SettingError(setting, value, problem, str(least))


def outputs(model: str, given: Any, shape: tuple[int, ...], note: str = "") -> None:
    """Checks the shape of a model's outputs for a batch of three examples.

    Args:
        model: its name.
        shape: expected, without the batch.
        note: the end of the message.

    Raises:
        UserError: it is another one.
    """
    found = getattr(given, "shape", None)
    shown = type(given).__name__ if found is None else tuple(found)
    if shown != (3, *shape):
        expected = ", ".join(map(str, ["batch", *shape]))
        raise UserError(
            f"train.model: {model} returns {shown} for a batch of 3; expected [{expected}]{note}",
            setting="train.model",
            value=model,
        )


def rows(of: str, values: Any, weights: Any, *rest: int) -> None:
    """Checks that a tensor has a row for each example: another one would broadcast.

    Args:
        of: what the tensor is, in a message.
        weights: of the examples, ``[batch]``.
        rest: the further dimensions.

    Raises:
        UserError: its shape is not ``[batch, *rest]``.
    """
    if not values.shape.is_compatible_with([*weights.shape, *rest]):
        expected = ", ".join(map(str, ["batch", *rest]))
        raise UserError(
            f"task.name: {of} has shape {tuple(values.shape)} for a batch of {weights.shape[0]}; "
            f"return [{expected}], a row for each example, so that parts of a batch add up",
            setting="task.name",
            value=of,
        )
