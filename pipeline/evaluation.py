"""The EvalConfig for the settings ``evaluate:``."""

from __future__ import annotations

from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it

from stagecraft.components.evaluator.eval_config import make_eval_config
from stagecraft.pipeline.settings import EvaluateSettings


def eval_config(settings: EvaluateSettings) -> config_pb2.EvalConfig:
    """See :func:`stagecraft.components.evaluator.eval_config.make_eval_config`."""
    return make_eval_config(**settings.model_dump())
