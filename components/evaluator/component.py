"""TFX's Evaluator, without AutoGraph, and with a baseline of the same task."""

from __future__ import annotations

import json
import logging
import posixpath
from typing import Any

import numpy as np
from tfx import types
from tfx.components.evaluator import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import path_utils

from stagecraft.components.evaluator import without_autograph
from stagecraft.trainer_module.training.assets import METRICS

Artifacts = dict[str, list[types.Artifact]]
_BASELINE = "baseline_model"

_log = logging.getLogger(__name__)


class Executor(executor.Executor):
    """TFX's executor, run without AutoGraph.

    It compares a model with a baseline only if both measure the same metrics of the same task.
    """

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See TFX's executor."""
        if input_dict.get(_BASELINE) and input_dict.get("model"):
            ours, theirs = (_measured(input_dict[name]) for name in ("model", _BASELINE))
            if ours != theirs:
                _log.warning(
                    "The model is not compared with the last blessed model, whose metrics differ: "
                    "%s, not %s",
                    theirs,
                    ours,
                )
                input_dict = {k: each for k, each in input_dict.items() if k != _BASELINE}
        # TFMA calls a signature in a way that TensorFlow first refuses. The error, which nobody
        # reads, has the text of the whole batch.
        with without_autograph.installed(), np.printoptions(threshold=1, edgeitems=1):
            super().Do(input_dict, output_dict, exec_properties)


def _measured(model: list[types.Artifact]) -> Any:
    """Task and metrics of a model's signature ``evaluation``; None for one without it."""
    folder = path_utils.serving_model_path(artifact_utils.get_single_uri(model))
    path = posixpath.join(folder, METRICS)
    if not fileio.exists(path):
        return None
    with fileio.open(path) as file:
        return json.load(file)


class Evaluator(component.Evaluator):
    """Has the inputs, outputs and arguments of ``tfx.components.Evaluator``."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
