"""Determines the kind of file or folder in ``train.initial_weights``. Imports no TensorFlow."""

from __future__ import annotations

import enum
import glob
import pathlib
from typing import NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.settings.train import names_a_run

SETTING = "train.initial_weights"

_KINDS = (
    ".keras, .weights.h5, the folder of a preset of KerasHub, the checkpoint folder of a step "
    "(state.index, progress.json), the folder of a pushed model (saved_model.pb), or the "
    "checkpoint of an Estimator (model.ckpt-1000)"
)


class InitialWeightsError(UserError):
    """``train.initial_weights`` is not usable."""

    def __init__(self, path: str | pathlib.Path, problem: str):
        super().__init__(
            f"{SETTING}: {path}: {problem}", setting=SETTING, value=str(path), file=str(path)
        )
        self.path = str(path)
        self.problem = problem


class Kind(enum.Enum):
    """How weights are stored."""

    KERAS = "a .keras file"
    WEIGHTS_H5 = "a .weights.h5 file"
    CHECKPOINT = "a checkpoint"
    SAVED_MODEL = "a SavedModel"
    ESTIMATOR = "a checkpoint of an Estimator"
    KERAS_HUB = "a preset of KerasHub"


VARIABLE_PATHS = "assets.extra/variable_paths.json"
"""File in a SavedModel with the paths of its ``model_variables``, in their order. TensorFlow
reserves the folder ``assets.extra`` for other programs."""

TRANSFORM_GRAPH = "transform_graph"
"""Folder with the Transform graph of the weights: in ``assets.extra`` of a SavedModel, and in the
checkpoint folder of a training, next to the steps."""

TRAINING_STATE = "training_state"
"""Folder next to the SavedModel in the Trainer's output, with a checkpoint of the exported step: of
a training whose ``train.warm_start.optimizer_state`` is true."""


def transform_graph(path: pathlib.Path) -> pathlib.Path | None:
    """The folder with the Transform graph of the weights at ``path``; None: there is none."""
    above = path.resolve().parents
    folders = (path / "assets.extra", *above[:2], path)  # above[1] of a step that was replaced
    found = (folder / TRANSFORM_GRAPH for folder in folders)
    return next((each for each in found if (each / "transform_fn").is_dir()), None)


_HUB_WEIGHTS = ("*.weights.h5", "model.weights.json", "model*.safetensors*")
"""Files of a preset; one from Hugging Face has safetensors."""

_FILES = {
    Kind.CHECKPOINT: ("state.*",),
    Kind.SAVED_MODEL: ("saved_model.pb", "variables/*", VARIABLE_PATHS),
    Kind.KERAS_HUB: ("config.json", "task.json", *_HUB_WEIGHTS),
}


class Source(NamedTuple):
    """Kind and path of the weights."""

    kind: Kind
    path: pathlib.Path

    def files(self) -> list[pathlib.Path]:
        """The files that contain the weights; the folder may contain others, such as a card."""
        if self.kind is Kind.ESTIMATOR:
            name = glob.escape(self.path.name)
            found = [
                *self.path.parent.glob(f"{name}.index"),
                *self.path.parent.glob(f"{name}.data-*"),
            ]
            return sorted(found)
        patterns = _FILES.get(self.kind)
        if patterns is None:
            return [self.path]
        return sorted(file for pattern in patterns for file in self.path.glob(pattern))


def find(path_text: str) -> Source:
    """Determines the kind of a path, by its name and the names of its files."""
    if names_a_run(path_text):
        raise InitialWeightsError(
            path_text, f"is the model of another run, which only a pipeline finds; use {_KINDS}"
        )
    path = pathlib.Path(path_text).expanduser()
    if path.with_name(f"{path.name}.index").is_file():
        return Source(Kind.ESTIMATOR, path)
    if not path.exists():
        raise InitialWeightsError(path_text, f"no such file or folder; expected {_KINDS}")
    if path.is_dir():
        return _folder(path_text, path)
    if not path.is_file():
        raise InitialWeightsError(path_text, "neither a file nor a folder")
    for suffix, kind in ((".keras", Kind.KERAS), (".weights.h5", Kind.WEIGHTS_H5)):
        if path.name.endswith(suffix):
            return Source(kind, path)
    hint = ""
    if path.suffix == ".index" or ".data-" in path.name:
        hint = f"; use {path.with_name(path.name.partition('.data-')[0].removesuffix('.index'))}"
    elif path.suffix in (".h5", ".hdf5"):
        hint = "; load the model in Keras 3 and save it as .weights.h5 with save_weights()"
    elif path.name == "saved_model.pb" or path.name.startswith("state."):
        hint = f"; use its folder, {path.parent}"
    raise InitialWeightsError(path_text, f"unknown kind of file; expected {_KINDS}{hint}")


def _folder(path_text: str, path: pathlib.Path) -> Source:
    if (path / "saved_model.pb").is_file():
        return Source(Kind.SAVED_MODEL, path)
    if (path / "state.index").is_file():
        return Source(Kind.CHECKPOINT, path)
    if (path / "config.json").is_file() and any(
        file.name != "task.weights.h5" for name in _HUB_WEIGHTS for file in path.glob(name)
    ):
        return Source(Kind.KERAS_HUB, path)
    numbered = sorted(int(each.name) for each in path.glob("*/") if each.name.isdecimal())
    if numbered:
        raise InitialWeightsError(
            path_text,
            f"contains several folders with weights ({', '.join(map(str, numbered[-5:]))}); use "
            f"one of them, such as {path / str(numbered[-1])}",
        )
    steps = [
        each.with_suffix("")
        for each in path.glob("*.ckpt-*.index")
        if each.stem.rpartition("-")[2].isdecimal()
    ]
    if steps:
        newest = max(steps, key=lambda each: int(each.name.rpartition("-")[2]))
        raise InitialWeightsError(
            path_text, f"contains checkpoints of an Estimator; use one of them, such as {newest}"
        )
    raise InitialWeightsError(path_text, f"a folder without weights; expected {_KINDS}")
