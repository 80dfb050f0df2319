"""An optimizer for some of the weights: ``{name: OPTIMIZER, …}`` in ``train.optimizer_args``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.optimization.optimizer import ARGS, KerasOptimizer, Optimizer
from stagecraft.trainer_module.settings import TrainSettings

_WHOLE = ("nadam",)
"""Optimizers with a state of all weights together."""


def check(given: Any, use: str) -> None:
    """Checks a name and its arguments.

    Args:
        use: an argument that would work.

    Raises:
        SettingError: no optimizer has the name, it computes with all weights together, or it does
            not have the arguments.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise SettingError(ARGS, given, "names no optimizer", use)
    entry = registries.OPTIMIZERS.get(given["name"])
    if not isinstance(entry, KerasOptimizer) or entry.name in _WHOLE:
        raise SettingError(ARGS, given["name"], "cannot update a part of the weights", use)
    entry.check(_without_name(given))


def of(train: TrainSettings, given: Mapping[str, Any]) -> tuple[Optimizer, TrainSettings]:
    """The optimizer, and settings that have only this one."""
    entry: Optimizer = registries.OPTIMIZERS.get(given["name"])
    update = {"optimizer": entry.name, "optimizer_args": _without_name(given)}
    return entry, train.model_copy(update=update)


def _without_name(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != "name"}
