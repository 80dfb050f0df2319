"""Reads the Trainer's results: its record, its curves, and the timeline of a step."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import tensorflow as tf
from tfx.dsl.io import fileio
from tfx.types import Artifact
from tfx.utils import path_utils

from stagecraft.components.report.report_data import Training
from stagecraft.trainer_module.training import record
from stagecraft.trainer_module.training.monitoring import curve, timeline


def read(model_run: Artifact, model: Artifact | None) -> Training | None:
    """Reads the Trainer's results.

    Returns:
        None if a user's own ``run_fn`` wrote no record.
    """
    text = _text(model_run.uri, record.FILE_NAME)
    parsed = None if text is None else record.parse(text, f"{model_run.uri}/{record.FILE_NAME}")
    if parsed is None:
        return None
    points = _text(model_run.uri, curve.FILE_NAME)
    spans = _text(model_run.uri, timeline.DATA)
    return Training(
        record=parsed,
        curve=curve.read(points) if points else [],
        timeline=json.loads(spans) if spans else None,
        parameters=_parameters(path_utils.serving_model_path(model.uri)) if model else None,
    )


def _text(folder: str, name: str) -> str | None:
    path = os.path.join(folder, name)
    if not fileio.exists(path):
        return None
    with fileio.open(path) as file:
        return str(file.read())


def _parameters(saved_model: str) -> int | None:
    """Number of weights of an exported model; None if it was removed."""
    variables: Any = os.path.join(saved_model, "variables", "variables")
    if not fileio.exists(f"{variables}.index"):
        return None
    shapes = {
        name: shape
        for name, shape in tf.train.list_variables(variables)
        if name.endswith("/.ATTRIBUTES/VARIABLE_VALUE")
    }
    # Our exports store variables under their layers, too.
    own = {name: shape for name, shape in shapes.items() if name.startswith("model_variables/")}
    counted = (own or shapes).values()
    return int(sum(np.prod(shape, dtype=np.int64) for shape in counted))
