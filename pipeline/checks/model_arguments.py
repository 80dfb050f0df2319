"""The arguments of the model's function, from which every command builds the model."""

from __future__ import annotations

from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.data import labels
from stagecraft.trainer_module.data.tasks.task import ModelArguments


def find(settings: PipelineSettings) -> ModelArguments:
    """The task's, from the schema: ``data.schema_file``, or the data set's schema."""
    task = settings.task.found
    labels.check_features(settings.data.schema_path, task.schema_features)
    return task.model_arguments(settings.data.schema_path)
