"""Parses and checks the settings of ``train:`` one by one. Imports no TensorFlow."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo, field_validator

from stagecraft.common import settings
from stagecraft.common.errors import SettingError
from stagecraft.common.registry import Entry
from stagecraft.common.settings import Settings
from stagecraft.trainer_module import registries


class TrainParsing(Settings):
    """Validators of single fields, which :class:`~.train.TrainFields` declares."""

    @field_validator("model", check_fields=False)
    @classmethod
    def _check_model(cls, value: str) -> str:
        registries.model_family(value)
        return value

    @field_validator("optimizer", "schedule", check_fields=False)
    @classmethod
    def _check_entry(cls, value: str, info: ValidationInfo) -> str:
        entry: Entry = registries.BY_SETTING[f"train.{info.field_name}"].get(value)
        return entry.name

    @field_validator("loss", mode="before", check_fields=False)
    @classmethod
    def _parse_loss(cls, value: Any) -> Any:
        """Accepts a name, a mapping, or the JSON of one, which flat settings hold."""
        named = registries.losses(value)
        return named.get("") or settings.mapping("train.loss", named)

    @field_validator(
        "optimizer_args",
        "schedule_args",
        "learning_rate_multipliers",
        "freeze_after",
        "loss_args",
        "loss_weights",
        mode="before",
        check_fields=False,
    )
    @classmethod
    def _parse_mapping(cls, value: Any, info: ValidationInfo) -> Any:
        """Accepts a mapping, or its JSON, which flat settings hold."""
        return settings.mapping(f"train.{info.field_name}", value)

    @field_validator("weight_decay_exclude", "frozen", mode="before", check_fields=False)
    @classmethod
    def _parse_patterns(cls, value: Any, info: ValidationInfo) -> Any:
        """Accepts a list, its JSON, or a single regular expression."""
        return settings.patterns(f"train.{info.field_name}", value)

    @field_validator("callbacks", mode="before", check_fields=False)
    @classmethod
    def _parse_callbacks(cls, value: Any) -> Any:
        """Accepts a list, or a comma-separated string."""
        return settings.dotted_names("train.callbacks", value)

    @field_validator("initial_weights", check_fields=False)
    @classmethod
    def _check_initial_weights(cls, value: str | None) -> str | None:
        if value is not None and "://" in value:
            raise SettingError(
                "train.initial_weights",
                value,
                "is a URI, but a training run loads weights only from files",
                "a path that all processes can read, in the container image or on a volume",
            )
        return value or None

    @field_validator("initial_weights_skip", mode="before", check_fields=False)
    @classmethod
    def _parse_skip(cls, value: Any) -> Any:
        """Accepts a list, or a comma-separated string."""
        if isinstance(value, str):
            value = value.split(",")
        if not isinstance(value, (list, tuple)) or not all(isinstance(x, str) for x in value):
            return value
        return (
            ",".join(part.strip().strip("/") for part in value if part.strip().strip("/")) or None
        )

    @field_validator("augment", mode="before", check_fields=False)
    @classmethod
    def _parse_augment(cls, value: Any) -> Any:
        """Accepts a list, a comma-separated string, ``true`` (the default) or ``false``."""
        if value is True:
            return cls.model_fields["augment"].default
        if value is False or value is None or value in ("", "none", "false"):
            return "none"
        return ",".join(registries.augmentations(value))

    @field_validator("test_time_augment", mode="before", check_fields=False)
    @classmethod
    def _parse_test_time_augment(cls, value: Any) -> Any:
        """Accepts ``none`` and ``false``."""
        return None if value in ("", "none", "false", False) else value

    @field_validator("lookahead", check_fields=False)
    @classmethod
    def _parse_lookahead(cls, value: int | None) -> int | None:
        """Off is None: checkpoints from before this setting can resume."""
        return value or None
