"""The EvalConfig for the settings ``evaluate:``."""

from __future__ import annotations

from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it

from stagecraft.common.errors import SettingError
from stagecraft.components.evaluator.eval_config import make_eval_config
from stagecraft.pipeline.settings import EvaluateSettings
from stagecraft.schemas.features import MissingFeatureError
from stagecraft.trainer_module.data import schema_reader
from stagecraft.trainer_module.settings import TaskSettings


def eval_config(
    settings: EvaluateSettings, task: TaskSettings | None = None, schema_path: str | None = None
) -> config_pb2.EvalConfig:
    """See :func:`stagecraft.components.evaluator.eval_config.make_eval_config`.

    Raises:
        SettingError: a slice is no feature of the schema. TFMA would leave it out without a word.
    """
    if schema_path and settings.slices:
        try:
            schema_reader.check_features(schema_path, settings.slices)
        except MissingFeatureError as error:
            raise SettingError(
                "evaluate.slices",
                ", ".join(error.missing),
                f"is not in {schema_path}",
                f"features such as {', '.join(error.present)}",
            ) from None
    return make_eval_config(task=task, **settings.model_dump(exclude_none=True))
