"""The number of classes that every command builds a model for."""

from __future__ import annotations

from stagecraft.pipeline.settings import DataSettings
from stagecraft.trainer_module.data import labels


def count(data: DataSettings) -> int:
    """The number of classes in the schema: ``data.schema_file``, or the data set's schema."""
    labels.check_features(data.schema_path)
    return len(labels.class_names(data.schema_path))
