"""The settings of a task. Imports no TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, PrivateAttr, field_validator, model_validator

from stagecraft.common.settings import Settings
from stagecraft.trainer_module import registries


class TaskSettings(Settings):
    """The task that is learned (``task:``)."""

    is_recorded = True

    name: str = Field(
        "image_classification",
        description="what the model learns: one of these tasks, or your own task as "
        "package.module:name",
    )
    args: dict[str, Any] | None = Field(
        None, description="arguments of the task, such as features and label of a table"
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        registries.task(value)
        return value

    @field_validator("args", mode="before")
    @classmethod
    def _parse_args(cls, value: Any) -> Any:
        """Accepts JSON text as well, the form of an execution property."""
        return (json.loads(value) if isinstance(value, str) else value) or None

    @model_validator(mode="after")
    def _check_args(self) -> TaskSettings:
        self.found.check()
        return self

    def resolved(self, schema_path: str) -> TaskSettings:
        """The settings with what the schema says, see ``Task.resolved_args``."""
        arguments = self.found.resolved_args(self.args or {}, schema_path)
        return TaskSettings(name=self.name, args=dict(arguments))

    _fitted: Any = PrivateAttr(None)

    def fitted(
        self, features: Mapping[str, Any], vocabulary: Callable[[str], Sequence[bytes]]
    ) -> TaskSettings:
        """The settings with what the data says, see ``Task.fitted``. No setting shows it."""
        copied = self.model_copy()
        copied._fitted = self.found.fitted(features, vocabulary)
        return copied

    @property
    def found(self) -> Any:
        """The :class:`~stagecraft.trainer_module.data.tasks.task.Task`."""
        return self._fitted or registries.task(self.name, self.args)
