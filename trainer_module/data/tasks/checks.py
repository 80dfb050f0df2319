"""Checks of what a task is given, and of what it returns."""

from __future__ import annotations

from typing import Any

from stagecraft.common.errors import SettingError, UserError


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
