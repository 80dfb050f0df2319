"""Weights by variable path, out of a checkpoint of a training or a SavedModel that it exported."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.checkpointing.checkpoints import (
    Checkpoints,
    UnreadableCheckpointError,
)
from stagecraft.trainer_module.models.initial_weights.source import (
    VARIABLE_PATHS,
    InitialWeightsError,
)

Weights = dict[str, np.ndarray]


def of_checkpoint(folder: pathlib.Path) -> Weights:
    """Variable path -> value; averages take their weights' places, as in evaluation and export.

    Args:
        folder: of one step.

    Raises:
        InitialWeightsError: it is damaged, or of another version.
    """
    step = folder.resolve().name
    if not step.isdecimal():
        raise InitialWeightsError(
            folder, f"a checkpoint's folder is called as its step is, and not {step!r}; rename it"
        )
    try:
        state = Checkpoints(folder.resolve().parent, writes=False).load(int(step)).state
    except UnreadableCheckpointError as error:
        raise InitialWeightsError(folder, f"cannot be read: {_line(error)}") from None
    return {
        name.removeprefix(prefix): value
        for prefix in ("model/", "ema/")  # in this order: the second takes the first's place
        for name, value in state.items()
        if name.startswith(prefix)
    }


def of_saved_model(folder: pathlib.Path) -> Weights:
    """Variable path -> value, of a SavedModel that a training exported.

    Raises:
        InitialWeightsError: it is damaged, or does not say which variable is which: another
            program, or an earlier version of this one, wrote it.
    """
    try:
        paths = json.loads((folder / VARIABLE_PATHS).read_text())
    except FileNotFoundError:
        raise InitialWeightsError(
            folder,
            f"the SavedModel has no {VARIABLE_PATHS}, which says which variable is which; "
            "train and push it again with this version, or give the training's checkpoint",
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
    except Exception as error:  # of a damaged file TensorFlow says IndexError, RuntimeError, …
        raise InitialWeightsError(folder, f"cannot be read: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
