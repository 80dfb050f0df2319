"""The Trainer's side of a run: its record, its curves, and the step it watched."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import tensorflow as tf
from tfx.dsl.io import fileio
from tfx.types import Artifact
from tfx.utils import path_utils

from stagecraft.components.report.facts import Training
from stagecraft.trainer_module.training import record
from stagecraft.trainer_module.training.monitoring import curve, timeline


def read(model_run: Artifact, model: Artifact | None) -> Training | None:
    """What the Trainer left.

    Args:
        model_run: its output, with ``record.json``, ``curve.json`` and perhaps a timeline.
        model: what it exported.

    Returns:
        None where another ``run_fn`` than ours wrote no record.
    """
    text = _text(model_run.uri, record.FILE_NAME)
    found = None if text is None else record.parse(text, f"{model_run.uri}/{record.FILE_NAME}")
    if found is None:
        return None
    points = _text(model_run.uri, curve.FILE_NAME)
    watched = _text(model_run.uri, timeline.DATA)
    return Training(
        record=found,
        curve=curve.read(points) if points else [],
        timeline=json.loads(watched) if watched else None,
        parameters=_parameters(path_utils.serving_model_path(model.uri)) if model else None,
    )


def _text(folder: str, name: str) -> str | None:
    path = os.path.join(folder, name)
    if not fileio.exists(path):
        return None
    with fileio.open(path) as file:
        return str(file.read())


def _parameters(saved_model: str) -> int | None:
    """Weights of an exported model; None where it is not there any more."""
    variables: Any = os.path.join(saved_model, "variables", "variables")
    if not fileio.exists(f"{variables}.index"):
        return None
    shapes = {
        name: shape
        for name, shape in tf.train.list_variables(variables)
        if name.endswith("/.ATTRIBUTES/VARIABLE_VALUE")
    }
    # Ours may be stored twice: under their layers as well.
    ours = {name: shape for name, shape in shapes.items() if name.startswith("model_variables/")}
    counted = (ours or shapes).values()
    return int(sum(np.prod(shape, dtype=np.int64) for shape in counted))
