"""Different optimizers for different weights, as Estimator's wide-and-deep models have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.optimization.optimizer import ARGS, Optimizer
from stagecraft.trainer_module.optimization.optimizers.parts import part
from stagecraft.trainer_module.settings import TrainSettings

_USE = '{"^linear": {name: ftrl}, "": {name: adagrad, initial_accumulator_value: 0.2}}'


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
            part.check(given, _USE)

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
            entry, own = part.of(train, train.optimizer_args[pattern])
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
            entry, own = part.of(train, train.optimizer_args[pattern])
            return entry.make(own)

        return PartOptimizer(make, train.learning_rate, train.weight_decay)


def _pattern(train: TrainSettings, path: str) -> str | None:
    patterns = train.optimizer_args
    return next((pattern for pattern in patterns if re.search(pattern, path)), None)


PARTS = Parts()
