"""TFX's Evaluator, without AutoGraph, and with a baseline of the same task."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it
from tfx.components.evaluator import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils, proto_utils

from stagecraft.components.evaluator import baseline_check, without_autograph
from stagecraft.components.interface import Artifacts
from stagecraft.components.metadata import manifest
from stagecraft.schemas import features

_BASELINE = "baseline_model"

_log = logging.getLogger(__name__)


class Executor(executor.Executor):
    """TFX's executor, whose metrics run without AutoGraph.

    It compares a model with a baseline only if the baseline can read the examples, and both measure
    the same metrics of the same task.
    """

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See TFX's executor.

        Raises:
            BaselineError: a metric has a bound for its change, but the baseline cannot be compared.
            DamagedArtifactError: a model or the examples changed after a step made them.
            MissingFeatureError: a slice is no feature of the schema. TFMA would leave it out.
        """
        manifest.check(input_dict)
        config = config_pb2.EvalConfig()
        proto_utils.json_to_proto(exec_properties.get("eval_config") or "{}", config)
        if input_dict.get("schema"):
            _check_slices(config, artifact_utils.get_single_uri(input_dict["schema"]))
        if input_dict.get(_BASELINE) and input_dict.get("model"):
            splits = json_utils.loads(exec_properties.get("example_splits") or "null") or ["eval"]
            model, examples = input_dict["model"], input_dict["examples"]
            if why := baseline_check.check(model, input_dict[_BASELINE], examples, splits, config):
                _log.warning("The model is not compared with the last blessed model, which %s", why)
                input_dict = {k: each for k, each in input_dict.items() if k != _BASELINE}
        # TFMA calls a signature in a way that TensorFlow first refuses. The error, which nobody
        # reads, has the text of the whole batch.
        with without_autograph.installed(), np.printoptions(threshold=1, edgeitems=1):
            super().Do(input_dict, output_dict, exec_properties)


def _check_slices(config: config_pb2.EvalConfig, folder: str) -> None:
    path = io_utils.get_only_uri_in_dir(folder)
    schema = io_utils.SchemaReader().read(path)
    features.require(
        path,
        (feature.name for feature in schema.feature),
        [key for spec in config.slicing_specs for key in spec.feature_keys],
        "use the name of a feature in evaluate.slices",
    )


class Evaluator(component.Evaluator):
    """Has the inputs, outputs and arguments of ``tfx.components.Evaluator``."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
