"""A plugin of pytest for Keras's own tests: each model that they train is parallelized.

export STAGECRAFT_TOPOLOGY='{"strategy": "mirrored", "replicas": 2}'
export PYTHONPATH=tests/library/parallel_model
pytest -p keras_plugin KERAS/keras/src/trainers/trainer_test.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import types
from typing import Any

import stagecraft as sc

SETTINGS: dict[str, Any] = json.loads(os.environ.get("STAGECRAFT_TOPOLOGY") or "{}")

METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")

if SETTINGS:
    sc.virtual_devices(SETTINGS.get("replicas", 1) * SETTINGS.get("stages", 1))

import keras  # noqa: E402
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer  # noqa: E402

for _name in ("jax", "requests"):  # Keras's tests import them, and few of them need them
    if importlib.util.find_spec(_name) is None:
        sys.modules[_name] = types.ModuleType(_name)


def _wrap(name: str) -> None:
    own = getattr(TensorFlowTrainer, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, keras.Layer) and "_stagecraft_session" not in vars(self):
            sc.parallelize(self, sc.Parallel(**SETTINGS))
        return own(self, *args, **kwargs)

    setattr(TensorFlowTrainer, name, method)


if SETTINGS:
    for _name in METHODS:
        _wrap(_name)
