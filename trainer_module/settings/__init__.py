"""The settings of a training: task, model, data, optimizer and topology. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from stagecraft.common import settings
from stagecraft.common.errors import SettingError
from stagecraft.common.settings import Settings
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.parallel import rules
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.settings.task import TaskSettings
from stagecraft.trainer_module.settings.train import TrainSettings

__all__ = ["ParallelSettings", "Settings", "TaskSettings", "TrainSettings", "TrainingSettings"]


_NOTHING: tuple[Any, ...] = (None, (), {})


class TrainingSettings(Settings):
    """All settings of a ``run_fn``; TFX passes them as typed execution properties."""

    task: TaskSettings = Field(default_factory=TaskSettings)
    train: TrainSettings = Field(default_factory=TrainSettings, validate_default=True)
    parallel: ParallelSettings = Field(default_factory=ParallelSettings)

    @field_validator("train")
    @classmethod
    def _of_task(cls, train: TrainSettings, info: ValidationInfo) -> TrainSettings:
        """The task's own defaults."""
        task = info.data.get("task")
        return train if task is None else train.with_defaults(task.found.train_defaults)

    @field_validator("train")
    @classmethod
    def _check_augment(cls, train: TrainSettings, info: ValidationInfo) -> TrainSettings:
        """The task decides whether ``augment`` has an effect."""
        task = info.data.get("task")
        if task is None or not train.augment:
            return train
        if task.found.augments:
            for name in train.augment:
                if registries.AUGMENTATIONS.get(name).mixes and not task.found.mixes:
                    problem = f"does not work with the task {task.name}, only with pictures"
                    raise SettingError("train.augment", name, problem, "crop,flip")
            return train
        if "augment" in train.model_fields_set:
            raise SettingError(
                "train.augment",
                ",".join(train.augment),
                f"has no effect: the task {task.name} does not augment",
                "train.augment: none",
            )
        return train.model_copy(update={"augment": ()})

    @model_validator(mode="after")
    def _check(self) -> TrainingSettings:
        rules.check_batch_size(self.train.batch_size, self.parallel)
        if self.train.label_smoothing and self.train.loss == "task" and not self.task.found.smooths:
            raise SettingError(
                "train.label_smoothing",
                self.train.label_smoothing,
                f"has no effect: the task {self.task.name} has no classes",
                "train.label_smoothing: 0",
            )
        self._check_scaled_targets()
        self._check_elementwise()
        if self.train.test_time_augment and not self.task.found.mixes:
            raise SettingError(
                "train.test_time_augment",
                self.train.test_time_augment,
                f"does not work with the task {self.task.name}, only with pictures",
                "train.test_time_augment: none",
            )
        if self.train.lookahead and not self.parallel.found.in_step:
            raise SettingError(
                "train.lookahead",
                self.train.lookahead,
                f"does not work with parallel.strategy: {self.parallel.strategy}: a pull would "
                "undo steps that other workers take meanwhile",
                "train.lookahead: 0, or train.ema_decay",
            )
        if self.parallel.evaluator:
            self._check_evaluator()
        if self.train.steps is not None:  # epochs are known with the data
            rules.check_watched(self.train.steps, self.parallel)
        return self

    def _check_scaled_targets(self) -> None:
        """A loss of ratios or logarithms needs targets in their own unit."""
        for name, _ in self.train.losses.values():
            if registries.LOSSES.get(name).needs_zero and self.task.found.scales_targets:
                raise SettingError(
                    "train.loss",
                    name,
                    f"needs labels in their own unit, but the task {self.task.name} scales them to "
                    "mean 0 and variance 1",
                    "task.args.label_scale: none",
                )

    def _check_elementwise(self) -> None:
        """An optimizer that divides weights takes each entry by itself."""
        for name, default, among in (("zero", 0, "replicas"), ("shards", 1, "devices")):
            value, optimizer = getattr(self.parallel, name), self.train.optimizer
            if value > default and not registries.OPTIMIZERS.get(optimizer).elementwise:
                raise SettingError(
                    f"parallel.{name}",
                    value,
                    f"divides weights among {among}, but train.optimizer: {optimizer} may compute "
                    "with whole ones",
                    f"parallel.{name}: {default}, or train.optimizer: adamw",
                )

    def _check_evaluator(self) -> None:
        """An evaluator process evaluates later, when nobody waits for it."""
        train = self.train
        following = {
            "early_stopping_patience": train.early_stopping_patience is not None,
            "schedule": registries.SCHEDULES.get(train.schedule).follows_evaluations,
        }
        for name in filter(following.get, following):
            raise SettingError(
                f"train.{name}",
                getattr(train, name),
                "needs each evaluation before the next step",
                "parallel.evaluator: false",
            )

    def resolved(self, schema_path: str) -> Self:
        """A copy whose task needs no schema for its loss."""
        return self.model_copy(update={"task": self.task.resolved(schema_path)})

    def fitted(
        self, features: Mapping[str, Any], vocabulary: Callable[[str], Sequence[bytes]]
    ) -> Self:
        """A copy whose task knows what Transform found; the arguments: see ``Task.fitted``."""
        return self.model_copy(update={"task": self.task.fitted(features, vocabulary)})

    @property
    def definite(self) -> Self:
        """A copy with float32 for ``parallel.precision: auto``, for all but a training."""
        return self.model_copy(update={"parallel": self.parallel.definite})

    def flat(self) -> dict[str, int | float | str]:
        """``{"train_batch_size": 128, …}``; a mapping or a list is JSON, no value is left out."""
        sections = {name: getattr(self, name) for name in TrainingSettings.model_fields}
        return {
            f"{section}_{name}": settings.primitive(value, sort_keys=section == "task")
            for section, given in sections.items()
            for name, value in given.model_dump().items()
            if value not in _NOTHING or type(given).model_fields[name].default not in _NOTHING
        }

    @classmethod
    def parsed(cls, name: str, value: Any) -> Any:
        """A flat value of one setting as YAML has it; that of an unknown setting stays."""
        section, _, field = name.partition("_")
        outer = cls.model_fields.get(section)
        known = outer.annotation.model_fields.get(field) if outer else None  # type: ignore[union-attr]
        return settings.structured(value, known.annotation) if known else value

    @classmethod
    def from_flat(cls, flat: dict[str, Any]) -> TrainingSettings:
        """The inverse of :meth:`flat`. Raises pydantic's ValidationError on bad values."""
        nested: dict[str, dict[str, Any]] = {section: {} for section in cls.model_fields}
        for key, value in flat.items():
            section, _, name = key.partition("_")
            nested[section][name] = value
        return cls.model_validate(nested)
