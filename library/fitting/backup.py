"""Keeps the state of a training after each epoch, and goes on from there.

``keras.callbacks.BackupAndRestore`` keeps weights and epoch in two files, so that a process that is
killed between them resumes with weights of another epoch; and it loads whatever has the right
shapes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from stagecraft import pickles
from stagecraft.common.errors import SettingError, UserError
from stagecraft.fitting.history import plain
from stagecraft.objects.model import structure
from stagecraft.parallel_model.lockstep import build_optimizer, state
from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors

_FILE = "training.npz"


class Backup:
    """The file of a training, and the callbacks that read and write it."""

    def __init__(self, folder: str):
        self._path = pathlib.Path(folder).absolute() / _FILE
        self.earlier: dict[str, Any] = {"epoch": [], "history": {}}
        """Epochs so far, with those of earlier calls, as ``keras.callbacks.History`` has them."""
        self._training: dict[str, Any] = {}
        """Properties that have to be equal for a training to go on."""

    def around(self, callbacks: Sequence[Any]) -> list[Any]:
        """The callbacks of a call of ``fit``: state is read before them, and written after them."""
        return [_Reads(self), *callbacks, _Writes(self)]

    def read(self, model: Any, epochs: int) -> None:
        """Restores the state, if there is one; ``epochs``: that the caller wants."""
        build_optimizer(model)
        self._training = _described(model)
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
        variables = state(model)
        shapes = [(tuple(each.shape), np.dtype(str(each.dtype))) for each in variables]
        own = self._training | {"state": shapes == [(x.shape, x.dtype) for x in values]}
        has_begun = model.optimizer is not None and int(model.optimizer.iterations) > 0
        for name, what in own.items():
            known = True if name == "state" else kept["training"].get(name)
            if known != what and not (name == "learning rate" and has_begun):
                raise SettingError(
                    "checkpoint_dir",
                    str(self._path.parent),
                    f"holds a training run with another {name}",
                    "another folder, or the arguments of that training run",
                )
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        self._training = kept["training"]
        self.earlier = {name: kept[name] for name in ("epoch", "history")}
        is_over = kept["finished"] >= epochs
        model._initial_epoch = epochs if is_over else self.earlier["epoch"][-1] + 1

    def write(self, model: Any, finished: int) -> None:
        """Writes the state; ``finished``: the epochs of a training that has ended, or 0."""
        variables = [np.asarray(each) for each in state(model)]
        kept = {
            "training": self._training,
            "variables": len(variables),
            "finished": finished,
            **self.earlier,
        }
        stream = io.BytesIO()
        arrays = {f"variable_{place}": value for place, value in enumerate(variables)}
        np.savez(stream, training=json.dumps(kept), **arrays)
        with disk_errors(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(".part")
            part.write_bytes(stream.getvalue())
            os.replace(part, self._path)


class _Reads(keras.callbacks.Callback):
    def __init__(self, backup: Backup):
        super().__init__()
        self._backup = backup

    def on_train_begin(self, logs: Any = None) -> None:
        """See Keras."""
        self._backup.read(self.model, self.params["epochs"])


class _Writes(keras.callbacks.Callback):
    def __init__(self, backup: Backup):
        super().__init__()
        self._backup = backup

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See Keras."""
        self._backup.earlier["epoch"].append(epoch)
        for name, value in (logs or {}).items():
            self._backup.earlier["history"].setdefault(name, []).append(plain(value))
        self._backup.write(self.model, 0)

    def on_train_end(self, logs: Any = None) -> None:
        """Callbacks may have set the weights."""
        self._backup.write(self.model, self.params["epochs"])


def _described(model: Any) -> dict[str, Any]:
    rates: list[Any] = []
    config = None if model.optimizer is None else _without_rates(model.optimizer, rates)
    return {
        "model": hashlib.sha256(
            json.dumps(structure(model, named=False), sort_keys=True, default=repr).encode()
        ).hexdigest(),
        "optimizer": json.dumps(config, default=lambda value: type(value).__qualname__),
        "learning rate": json.dumps(rates, default=lambda value: type(value).__qualname__),
        "loss": pickles.digest(model.loss, "loss"),
    }


def _without_rates(optimizer: Any, rates: list[Any]) -> Any:
    config = dict(optimizer.get_config())
    config.pop("name", None)
    inner = config.pop("inner_optimizer", None)
    rates.append(config.pop("learning_rate", None))
    if inner is not None:
        return [type(optimizer).__name__, config, _without_rates(optimizer.inner_optimizer, rates)]
    return [type(optimizer).__name__, config]
