"""How many classes a model is built for: one answer for every command."""

from __future__ import annotations

from stagecraft.pipeline.settings import DataSettings
from stagecraft.trainer_module.data import labels


def count(data: DataSettings) -> int:
    """As many as the schema has that the run imports: ``data.schema_file``, or the data set's.

    Raises:
        UserError: as :func:`stagecraft.trainer_module.data.labels.class_names` and
            :func:`~stagecraft.trainer_module.data.labels.check_features`.
    """
    labels.check_features(data.schema_path)
    return len(labels.class_names(data.schema_path))
