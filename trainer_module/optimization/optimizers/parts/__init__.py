"""Different optimizers for different weights, as Estimator's wide-and-deep models have them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.schemas.errors import SettingError
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
            if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
                raise SettingError(ARGS, given, "names no optimizer", _USE)
            entry = registries.OPTIMIZERS.get(given["name"])
            if not isinstance(entry, KerasOptimizer) or entry.name in _WHOLE:
                problem = "does not update each weight by itself"
                raise SettingError(ARGS, given["name"], problem, "another optimizer of Keras")
            entry.check(_without_name(given))

    def check_weights(self, train: TrainSettings, paths: Sequence[str]) -> None:
        """Checks that each pattern applies to a weight, and that each weight has a pattern."""
        used = [_pattern(train, path) for path in paths]
        for pattern in train.optimizer_arguments:
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
        for pattern in train.optimizer_arguments:
            entry, own = _part(train, pattern)
            counts.append(entry.slots_with(own))
        return max(counts)

    def make(self, train: TrainSettings) -> Any:
        """Makes the optimizer."""
        from stagecraft.trainer_module.optimization.optimizers.parts.part_optimizer import (
            PartOptimizer,
        )

        def make(path: str) -> Any:
            pattern = _pattern(train, path)
            assert pattern is not None, "check_weights has found one"
            entry, own = _part(train, pattern)
            return entry.make(own)

        return PartOptimizer(make, train.learning_rate, train.weight_decay)


def _pattern(train: TrainSettings, path: str) -> str | None:
    patterns = train.optimizer_arguments
    return next((pattern for pattern in patterns if re.search(pattern, path)), None)


def _part(train: TrainSettings, pattern: str) -> tuple[Optimizer, TrainSettings]:
    """The optimizer of a pattern, and settings that have only this one."""
    given = train.optimizer_arguments[pattern]
    entry: Optimizer = registries.OPTIMIZERS.get(given["name"])
    args = json.dumps(_without_name(given))
    return entry, train.model_copy(update={"optimizer": entry.name, "optimizer_args": args})


def _without_name(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != "name"}


PARTS = Parts()
