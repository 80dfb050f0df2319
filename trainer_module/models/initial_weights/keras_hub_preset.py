"""Reads weights by variable path from the folder of a preset of KerasHub, or of Hugging Face."""

from __future__ import annotations

import pathlib

import keras
import numpy as np

from stagecraft.common.errors import cleaned
from stagecraft.trainer_module import hub
from stagecraft.trainer_module.models.initial_weights.source import SETTING, InitialWeightsError


def read(folder: pathlib.Path, model: keras.Model) -> dict[str, np.ndarray]:
    """Variable path -> value; with the weights of the head, if they are of the model's class.

    Raises:
        InitialWeightsError: KerasHub cannot read the folder.
        SettingError: KerasHub is missing.
    """
    hub.library(SETTING, str(folder))
    stored, head = hub.stored_task(type(model), str(folder)), folder / hub.TASK_WEIGHTS
    # The names of layers without one count from the start, as those of the model did.
    keras.utils.clear_session(free_memory=False)
    try:
        with keras.device("cpu:0"):
            found = hub.backbone(str(folder), load_weights=True, dtype="float32")
            if stored and head.is_file():
                found = hub.with_head(type(model), found, stored, {})
                found.load_task_weights(str(head))
    except Exception as error:  # whatever KerasHub, h5py or safetensors raise
        raise InitialWeightsError(folder, f"cannot be read: {cleaned(str(error))}") from error
    return {variable.path: np.asarray(variable.value) for variable in found.weights}


def is_adapter(path: str) -> bool:
    """Whether a variable belongs to an adapter (LoRA), which files of Keras do not have."""
    return path.rpartition("/")[2].startswith("lora_")
