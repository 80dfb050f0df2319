"""The EvalConfig for the settings ``evaluate:``."""

from __future__ import annotations

from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it

from stagecraft.components.evaluator.eval_config import make_eval_config
from stagecraft.pipeline.settings import EvaluateSettings
from stagecraft.trainer_module.settings import TaskSettings


def eval_config(
    settings: EvaluateSettings, task: TaskSettings | None = None
) -> config_pb2.EvalConfig:
    """See :func:`stagecraft.components.evaluator.eval_config.make_eval_config`."""
    return make_eval_config(task=task, **settings.model_dump(exclude_none=True))
