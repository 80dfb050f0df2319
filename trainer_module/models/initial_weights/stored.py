"""Reads weights by variable path from a checkpoint, or from a SavedModel of this project."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.checkpointing import checkpoint_files
from stagecraft.trainer_module.models.initial_weights.source import (
    VARIABLE_PATHS,
    InitialWeightsError,
)

Weights = dict[str, np.ndarray]


def of_checkpoint(folder: pathlib.Path) -> Weights:
    """Variable path -> value; EMA weights replace the weights, as in evaluation and export.

    Raises:
        InitialWeightsError: the checkpoint is damaged, or of another version.
    """
    step = folder.resolve().name
    if not step.isdecimal():
        raise InitialWeightsError(
            folder, f"the name of a checkpoint's folder is its step, not {step!r}; rename it"
        )
    try:
        state = checkpoint_files.read(folder.resolve()).state
    except checkpoint_files.UnreadableCheckpointError as error:
        raise InitialWeightsError(folder, f"cannot be read: {_line(error)}") from None
    return {
        name.removeprefix(prefix): value
        for prefix in ("model/", "ema/")  # in this order: the second one replaces the first
        for name, value in state.items()
        if name.startswith(prefix)
    }


def of_saved_model(folder: pathlib.Path) -> Weights:
    """Variable path -> value, from a SavedModel that a training exported.

    Raises:
        InitialWeightsError: the SavedModel is damaged, or lacks the variables' paths, because
            another program, or an earlier version of this one, wrote it.
    """
    try:
        paths = json.loads((folder / VARIABLE_PATHS).read_text())
    except FileNotFoundError:
        raise InitialWeightsError(
            folder,
            f"the SavedModel has no {VARIABLE_PATHS} with the variables' paths; train and push it "
            "again with this version, or use a checkpoint of its training run",
        ) from None
    except (OSError, ValueError) as error:
        raise InitialWeightsError(folder / VARIABLE_PATHS, f"cannot be read: {error}") from None
    variables: Any = str(folder / "variables" / "variables")
    try:
        reader = tf.train.load_checkpoint(variables)
        return {
            path: np.asarray(
                reader.get_tensor(f"model_variables/{index}/.ATTRIBUTES/VARIABLE_VALUE")
            )
            for index, path in enumerate(paths)
        }
    except Exception as error:  # for a damaged file TensorFlow raises IndexError, RuntimeError, …
        raise InitialWeightsError(folder, f"cannot be read: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
