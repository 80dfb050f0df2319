"""Keeps the state of a training after each epoch, and goes on from there.

``keras.callbacks.BackupAndRestore`` keeps weights and epoch in two files, so that a process that is
killed between them resumes with weights of another epoch; and it loads whatever has the right
shapes.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from stagecraft import pickles
from stagecraft.parallel_model.lockstep import build_optimizer, state
from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors

_FILE = "training.npz"


class Backup(keras.callbacks.Callback):
    """Writes one file, whole or not at all; call it before other callbacks."""

    def __init__(self, folder: str):
        super().__init__()
        self._path = pathlib.Path(folder).absolute() / _FILE
        self.earlier: dict[str, Any] = {"epoch": [], "history": {}}
        """Epochs of earlier calls, as ``keras.callbacks.History`` has them."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Restores the state, if there is one."""
        if not self._path.exists():
            return
        try:
            with np.load(self._path) as file:
                kept = json.loads(str(file["training"]))
                values = [file[f"variable_{place}"] for place in range(kept["variables"])]
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise UserError(
                f"{self._path}: cannot be read: {error}; remove it to begin anew",
                file=str(self._path),
            ) from error
        build_optimizer(self.model)
        own = self._training()
        for name, what in own.items():
            if kept["training"].get(name) != what:
                raise SettingError(
                    "checkpoint_dir",
                    str(self._path.parent),
                    f"holds a training with another {name}",
                    "another folder, or the arguments of that training",
                )
        for variable, value in zip(self._variables(), values, strict=True):
            variable.assign(value)
        self.earlier = {name: kept[name] for name in ("epoch", "history")}
        self.model._initial_epoch = len(self.earlier["epoch"])

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the state."""
        self.earlier["epoch"].append(epoch)
        for name, value in (logs or {}).items():
            self.earlier["history"].setdefault(name, []).append(float(value))
        variables = [np.asarray(each) for each in self._variables()]
        kept = {"training": self._training(), "variables": len(variables), **self.earlier}
        stream = io.BytesIO()
        arrays = {f"variable_{place}": value for place, value in enumerate(variables)}
        np.savez(stream, training=json.dumps(kept), **arrays)
        with disk_errors(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(".part")
            part.write_bytes(stream.getvalue())
            os.replace(part, self._path)

    def _variables(self) -> list[Any]:
        return [*{id(each): each for each in state(self.model)}.values()]

    def _training(self) -> dict[str, Any]:
        """What has to be equal for a training to go on."""
        model = self.model
        optimizer = model.optimizer
        config = {} if optimizer is None else dict(optimizer.get_config())
        config.pop("name", None)
        config.pop("learning_rate", None)  # a callback may have set it
        return {
            "model": [[list(each.shape), str(each.dtype)] for each in model.variables],
            "optimizer": [type(optimizer).__name__, json.dumps(config, default=str)],
            "loss": pickles.digest(model.loss, "loss"),
        }
