"""The settings of ``train:``, checked against each other. Imports no TensorFlow."""

from __future__ import annotations

from pydantic import model_validator
from typing_extensions import Self

from stagecraft.common import settings
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.settings.train_values import TrainValues


class TrainSettings(TrainValues):
    """Model, optimizer and data (``train:``)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise SettingError(
                "train.steps",
                self.steps,
                f"and train.epochs: {self.epochs:g} exclude each other",
                "one of them",
            )
        if self.initial_weights_skip and not self.initial_weights:
            raise SettingError(
                "train.initial_weights_skip",
                self.initial_weights_skip,
                "skips nothing without train.initial_weights",
                "both, or neither",
            )
        if self.clip_norm and self.clip_value:
            raise SettingError(
                "train.clip_value",
                self.clip_value,
                f"and train.clip_norm: {self.clip_norm:g} exclude each other, as in Keras",
                "one of them",
            )
        if self.lookahead and self.ema_decay:
            raise SettingError(
                "train.lookahead",
                self.lookahead,
                f"and train.ema_decay: {self.ema_decay:g} exclude each other: each evaluates "
                "averages of its own",
                "one of them",
            )
        if self.steps is not None:  # epochs are known with the data
            self.check_length(self.steps)
        settings.check_factors("train.learning_rate_multipliers", self.multipliers)
        settings.check_shares("train.freeze_after", self.freeze_shares)
        registries.OPTIMIZERS.get(self.optimizer).check(self.optimizer_arguments)
        registries.SCHEDULES.get(self.schedule).check(self.schedule_arguments)
        self._check_losses()
        return self

    def check_length(self, steps: int) -> None:
        """Refuses a training of so many steps that has no pull, by a SettingError."""
        if self.lookahead and self.lookahead > steps:
            raise SettingError(
                "train.lookahead",
                self.lookahead,
                f"is after the last step: the training run has {steps:,} steps, and the slow "
                "weights would stay the initial ones",
                f"train.lookahead: {steps} or less",
            )

    def _check_losses(self) -> None:
        losses = self.losses
        outputs = [output for output in losses if output]
        for setting, kind, noun in (
            ("loss_args", dict, "a mapping of arguments"),
            ("loss_weights", (int, float), "a number"),
        ):
            if setting == "loss_args" and not outputs:
                continue
            for output, value in settings.loaded(getattr(self, setting), {}).items():
                if output not in outputs or not isinstance(value, kind):
                    use = f"{noun} for each output that train.loss maps to a loss"
                    raise SettingError(f"train.{setting}", output, "does not fit train.loss", use)
        for name, arguments in losses.values():
            entry = registries.LOSSES.get(name)
            entry.check(arguments)
            if self.label_smoothing and not entry.smooths:
                raise SettingError(
                    "train.label_smoothing",
                    self.label_smoothing,
                    f"is not supported by train.loss: {name}",
                    "train.label_smoothing: 0",
                )
