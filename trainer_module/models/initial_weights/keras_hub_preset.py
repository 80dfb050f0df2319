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
    models = hub.library(SETTING, str(folder)).models
    has_head = hub.stored_task(type(model), str(folder)) and (folder / hub.TASK_WEIGHTS).is_file()
    # The names of layers without one count from the start, as those of the model did.
    keras.utils.clear_session(free_memory=False)
    try:
        with keras.device("cpu:0"):
            if has_head:
                found = type(model).from_preset(str(folder), preprocessor=None, compile=False)
            else:
                found = models.Backbone.from_preset(str(folder))
    except Exception as error:  # whatever KerasHub, h5py or safetensors raise
        raise InitialWeightsError(folder, f"cannot be read: {cleaned(str(error))}") from error
    return {variable.path: np.asarray(variable.value) for variable in found.weights}


def is_adapter(path: str) -> bool:
    """Whether a variable belongs to an adapter (LoRA), which files of Keras do not have."""
    return path.rpartition("/")[2].startswith("lora_kernel_")
