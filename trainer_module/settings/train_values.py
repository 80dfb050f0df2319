"""Values that follow from the settings of ``train:``. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import Self

from stagecraft.common import settings
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.settings.train import TrainFields

DEFAULT_EPOCHS = 10.0
"""Used if the settings have neither steps nor epochs."""


class TrainValues(TrainFields):
    """Model, optimizer and data: the fields, and values that follow from them."""

    @property
    def skipped_weights(self) -> tuple[str, ...]:
        """Paths and patterns of ``initial_weights_skip``."""
        return tuple(self.initial_weights_skip.split(",")) if self.initial_weights_skip else ()

    @property
    def optimizer_arguments(self) -> dict[str, Any]:
        """``optimizer_args`` as a mapping."""
        return settings.loaded(self.optimizer_args, {})

    @property
    def schedule_arguments(self) -> dict[str, Any]:
        """``schedule_args`` as a mapping."""
        return settings.loaded(self.schedule_args, {})

    @property
    def losses(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Name and arguments of the loss of each output; one for all outputs has the key ``""``."""
        arguments = settings.loaded(self.loss_args, {})
        return {
            output: (name, arguments.get(output, {}) if output else arguments)
            for output, name in registries.losses(self.loss).items()
        }

    @property
    def output_weights(self) -> dict[str, float]:
        """``loss_weights`` as a mapping."""
        return settings.loaded(self.loss_weights, {})

    @property
    def multipliers(self) -> dict[str, float]:
        """``learning_rate_multipliers`` as a mapping."""
        return settings.loaded(self.learning_rate_multipliers, {})

    @property
    def frozen_patterns(self) -> list[str]:
        """``frozen`` as a list."""
        return settings.loaded(self.frozen, [])

    @property
    def freeze_shares(self) -> dict[str, float]:
        """``freeze_after`` as a mapping."""
        return settings.loaded(self.freeze_after, {})

    @property
    def undecayed_patterns(self) -> list[str]:
        """``weight_decay_exclude`` as a list."""
        return settings.loaded(self.weight_decay_exclude, [])

    @property
    def callback_names(self) -> tuple[str, ...]:
        """``callbacks`` as names."""
        return tuple(self.callbacks.split(",")) if self.callbacks else ()

    def total_steps(self, num_examples: int) -> int:
        """Optimizer steps of the whole training."""
        if self.steps is not None:
            return self.steps
        epochs = DEFAULT_EPOCHS if self.epochs is None else self.epochs
        return max(1, round(epochs * num_examples / self.batch_size))

    def steps_between_evaluations(self, num_examples: int) -> int:
        """``eval_every``, or the steps of one epoch."""
        return self.eval_every or self.steps_of_epoch(num_examples)

    def steps_of_epoch(self, num_examples: int) -> int:
        """Steps of one pass over the train split, rounded."""
        return max(1, round(num_examples / self.batch_size))

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """A copy with ``Task.train_defaults``."""
        given = set(self.model_fields_set)
        if "steps" in given:
            given.add("epochs")
        if "optimizer" in given:
            given |= {"learning_rate", "schedule"}
        return self.model_copy(update={k: v for k, v in defaults.items() if k not in given})

    def without_initial_weights(self) -> Self:
        """A copy without initial weights."""
        return self.model_copy(update={"initial_weights": None, "initial_weights_skip": None})

    @property
    def augmentations(self) -> tuple[str, ...]:
        """Names of the augmentations, in the order in which they are applied."""
        return () if self.augment == "none" else tuple(self.augment.split(","))
