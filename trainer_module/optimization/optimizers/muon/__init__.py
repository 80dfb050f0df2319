"""Muon (Jordan et al. 2024): orthogonal updates of kernels, and another optimizer for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from stagecraft.common import signatures
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.optimization.optimizer import ARGS, TAKEN, Optimizer
from stagecraft.trainer_module.optimization.optimizers.muon import arguments as muon_arguments
from stagecraft.trainer_module.optimization.optimizers.parts import part
from stagecraft.trainer_module.settings import TrainSettings

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
        known = dict.fromkeys([*muon_arguments.WORKING, _OTHERS], False)
        signatures.check(ARGS, arguments, known, TAKEN)
        for name, value in arguments.items():
            if name == _OTHERS:
                part.check(_named(value), _USE)
            elif problem := muon_arguments.problem(name, value):
                raise SettingError(
                    ARGS, {name: value}, problem, f"{name}: {muon_arguments.WORKING[name]}"
                )

    def check_weights(self, train: TrainSettings, weights: Sequence[Any]) -> None:
        """Checks that each pattern excludes a kernel, and that a kernel is left."""
        exclude = muon_arguments.patterns(train.optimizer_args.get("exclude"))
        muon_arguments.check_weights(exclude, weights, ARGS, self.name)

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
    return part.of(train, _named(train.optimizer_args.get(_OTHERS, "sgd")))


MUON = Muon()
