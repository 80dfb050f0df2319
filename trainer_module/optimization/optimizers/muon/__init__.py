"""Muon (Jordan et al. 2024): orthogonal updates of kernels, and another optimizer for the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from stagecraft.common import signatures
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.optimization.optimizer import ARGS, TAKEN, Optimizer
from stagecraft.trainer_module.optimization.optimizers import parts
from stagecraft.trainer_module.settings import TrainSettings

MOMENTUM = 0.95
ITERATIONS = 5

_WORKING = MappingProxyType(
    {
        "momentum": MOMENTUM,
        "nesterov": "true",
        "iterations": ITERATIONS,
        "normalize_weights": "false",
        "rate_factor": 1.0,
        "exclude": "[head/]",
    }
)
"""Arguments with values that work."""

_OTHERS = "others"

_USE = "others: {name: adamw, beta_2: 0.95}"


class Muon(Optimizer):
    """Hidden kernels have Muon's update; output layers, embeddings, biases and norms ``others``."""

    name = "muon"
    description = (
        "orthogonal updates of the kernels of hidden layers (Jordan et al. 2024), and sgd for the "
        "other weights"
    )
    in_library = MappingProxyType({"learning_rate": 0.02, "weight_decay": 0.0, "momentum": 0.9})

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks names and values.

        Raises:
            SettingError: one of them is invalid.
        """
        known = dict.fromkeys([*_WORKING, _OTHERS], False)
        signatures.check(ARGS, arguments, known, TAKEN)
        for name, value in arguments.items():
            if name == _OTHERS:
                parts.check_part(_named(value), _USE)
            elif problem := problem_with(name, value):
                raise SettingError(ARGS, {name: value}, problem, f"{name}: {_WORKING[name]}")

    def check_weights(self, train: TrainSettings, weights: Sequence[Any]) -> None:
        """Checks that each pattern excludes a kernel, and that a kernel is left."""
        exclude = patterns(train.optimizer_args.get("exclude"))
        check_weights(exclude, weights, ARGS, self.name)

    def slots_with(self, train: TrainSettings) -> float:
        """The most that a kernel or another weight has."""
        entry, own = _others(train)
        return max(self.slots, entry.slots_with(own))

    def make(self, train: TrainSettings) -> Any:
        """Makes the optimizer."""
        from stagecraft.trainer_module.optimization.optimizers.muon import muon_optimizer

        given = dict(train.optimizer_args)
        given.pop(_OTHERS, None)
        entry, own = _others(train)
        return muon_optimizer.Muon(
            train.learning_rate,
            others=entry.make(own),
            weight_decay=train.weight_decay,
            **given,
        )


def _named(others: Any) -> Any:
    return {"name": others} if isinstance(others, str) else others


def _others(train: TrainSettings) -> tuple[Optimizer, TrainSettings]:
    return parts.part_of(train, _named(train.optimizer_args.get(_OTHERS, "sgd")))


def problem_with(name: str, value: Any) -> str:
    """The problem with the value of an argument; empty: none."""
    if name in ("nesterov", "normalize_weights"):
        return "" if isinstance(value, bool) else "is neither true nor false"
    if name == "iterations":
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        return "" if whole else "is not a whole number of 1 or more"
    if name == "momentum":
        return "" if _is_number(value) and 0 <= value < 1 else "is not from 0 to below 1"
    if name == "rate_factor":
        return "" if _is_number(value) and value > 0 else "is not a number above 0"
    return _problem_of_patterns(value)


def patterns(exclude: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The regular expressions of ``exclude``; None: the output layers."""
    return exclude if exclude is None else (exclude,) if isinstance(exclude, str) else (*exclude,)


def check_weights(
    exclude: Sequence[str] | None, weights: Sequence[Any], setting: str, name: str
) -> None:
    """Checks that each pattern excludes a kernel, and that a kernel is left.

    Args:
        exclude: see :func:`patterns`.
        weights: all trained weights of the model.
        setting: the one that holds ``exclude``.
        name: of the optimizer in the settings.

    Raises:
        SettingError: they do not go together.
    """
    from stagecraft.trainer_module.models import matrices

    kernels = [weight for weight in weights if matrices.of(weight) is not None]
    paths = [weight.path for weight in kernels]
    for pattern in exclude or ():
        if not any(re.search(pattern, path) for path in paths):
            problem = "excludes no trained kernel"
            use = f"a part of a path such as {', '.join(paths[:5])}"
            raise SettingError(setting, {"exclude": pattern}, problem, use)
    if all(matrices.excluded(weight, exclude) for weight in kernels):
        problem = "has no kernel to update: the model has no trained kernel in a hidden layer"
        use = "sgd"
        if exclude:
            problem = "has no kernel to update: exclude matches all trained kernels"
            use = "fewer patterns in exclude"
        raise SettingError("train.optimizer", name, problem, use)


def _problem_of_patterns(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, (str, list, tuple)) or not all(isinstance(v, str) for v in value):
        return "is not a list of regular expressions"
    for pattern in patterns(value) or ():
        try:
            re.compile(pattern)
        except re.error as error:
            return f"is not a list of regular expressions: {error}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


MUON = Muon()
