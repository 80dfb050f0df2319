"""Different optimizers for different weights, as Estimator's wide-and-deep models have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.optimization.optimizer import ARGS, KerasOptimizer, Optimizer
from stagecraft.trainer_module.settings import TrainSettings

_USE = '{"^linear": {name: ftrl}, "": {name: adagrad, initial_accumulator_value: 0.2}}'


_WHOLE = ("nadam",)
"""Optimizers with a state of all weights together."""


class Parts(Optimizer):
    """The optimizer of a weight is that of the first pattern that its path matches."""

    name = "parts"
    description = (
        "several optimizers: optimizer_args maps regular expressions to {name: OPTIMIZER, …}; the "
        "first one that matches the path of a weight applies"
    )

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks patterns, names, and the arguments of each optimizer.

        Raises:
            SettingError: one of them is invalid.
        """
        if not arguments:
            raise SettingError(ARGS, "{}", "names no optimizer for train.optimizer: parts", _USE)
        for pattern, given in arguments.items():
            try:
                re.compile(pattern)
            except re.error as error:
                problem = f"is no regular expression: {error}"
                raise SettingError(ARGS, pattern, problem, _USE) from error
            check_part(given, _USE)

    def check_weights(self, train: TrainSettings, weights: Sequence[Any]) -> None:
        """Checks that each pattern applies to a weight, and that each weight has a pattern."""
        paths = [weight.path for weight in weights]
        used = [_pattern(train, path) for path in paths]
        for pattern in train.optimizer_args:
            if pattern not in used:
                problem = "applies to no trained weight"
                use = f"a part of a path such as {', '.join(paths[:5])}"
                raise SettingError(ARGS, pattern, problem, use)
        if None in used:
            path = paths[used.index(None)]
            problem = f"has no optimizer for the weight {path}"
            raise SettingError(ARGS, train.optimizer_args, problem, '"": {name: adam} as the last')

    def slots_with(self, train: TrainSettings) -> float:
        """The most that one of the optimizers has."""
        counts = []
        for pattern in train.optimizer_args:
            entry, own = part_of(train, train.optimizer_args[pattern])
            counts.append(entry.slots_with(own))
        return max(counts)

    def make(self, train: TrainSettings) -> Any:
        """Makes the optimizer."""
        from stagecraft.trainer_module.optimization.optimizers.parts.part_optimizer import (
            PartOptimizer,
        )

        def make(weight: Any) -> Any:
            pattern = _pattern(train, weight.path)
            assert pattern is not None, "check_weights has found one"
            entry, own = part_of(train, train.optimizer_args[pattern])
            return entry.make(own)

        return PartOptimizer(make, train.learning_rate, train.weight_decay)


def _pattern(train: TrainSettings, path: str) -> str | None:
    patterns = train.optimizer_args
    return next((pattern for pattern in patterns if re.search(pattern, path)), None)


def check_part(given: Any, use: str) -> None:
    """Checks the name and the arguments of an optimizer for some of the weights.

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


def part_of(train: TrainSettings, given: Mapping[str, Any]) -> tuple[Optimizer, TrainSettings]:
    """The optimizer for some of the weights, and settings that have only this one."""
    entry: Optimizer = registries.OPTIMIZERS.get(given["name"])
    update = {"optimizer": entry.name, "optimizer_args": _without_name(given)}
    return entry, train.model_copy(update=update)


def _without_name(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != "name"}


PARTS = Parts()
