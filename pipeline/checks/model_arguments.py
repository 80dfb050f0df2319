"""The arguments of the model's function, from which every command builds the model."""

from __future__ import annotations

from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.data import schema_reader
from stagecraft.trainer_module.data.tasks.task import ModelArguments


def find(settings: PipelineSettings) -> ModelArguments:
    """The task's, from the schema: ``data.schema_file``, or the data set's schema.

    If the schema is inferred later, the arguments that do not depend on it.
    """
    task, schema = settings.task.found, settings.schema_path
    if schema is None:
        arguments = task.sample_arguments
        assert arguments is not None, "the settings refuse this"
        return arguments
    if not task.is_table:  # which lists all that does not fit
        schema_reader.check_features(schema, task.schema_features)
    return task.model_arguments(schema)
