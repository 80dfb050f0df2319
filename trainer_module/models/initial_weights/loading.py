"""Loads ``train.initial_weights`` into a new model, on any devices."""

from __future__ import annotations

import fnmatch
import json
import logging
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from stagecraft.common.errors import cleaned
from stagecraft.trainer_module import hub
from stagecraft.trainer_module.checkpointing import checkpoint_files
from stagecraft.trainer_module.models.initial_weights import (
    estimator_checkpoint,
    keras_file,
    source,
    transform_graph_match,
)
from stagecraft.trainer_module.models.initial_weights.source import (
    SETTING,
    VARIABLE_PATHS,
    InitialWeightsError,
    Kind,
)
from stagecraft.trainer_module.settings import TrainSettings

_NAMED = 6
"""Number of names of each kind in a message."""

Shape = tuple[int, ...]

_log = logging.getLogger(__name__)
_progress = logging.getLogger("stagecraft.progress")


class Loaded(NamedTuple):
    """A report on the loaded weights."""

    file: str
    """The setting."""
    variables: int
    """Number of variables loaded."""
    total: int
    """Number of the model's variables."""
    compared: bool | None = None
    """Whether the inputs and labels mean the same as in the training of the weights; False: this
    could not be found out; None: there are no data yet."""
    carried: tuple[str, ...] = ()
    """Features whose ids have changed, and whose rows were carried over by token."""
    moves: Mapping[str, transform_graph_match.Move] = MappingProxyType({})
    """Path of each variable of a warm start -> the places that its rows had before."""
    rescaled: tuple[str, ...] = ()
    """Of a warm start: sentences about numbers that have another scale than before."""

    @property
    def rows(self) -> dict[str, dict[str, int]]:
        """Path of a moved variable -> number of tokens ``carried`` over, ``new``, ``dropped``."""
        return {path: move.counts() for path, move in self.moves.items()}

    def entry(self) -> dict[str, Any]:
        """The entry in a training's record."""
        kept = self._asdict()
        del kept["moves"]
        return {**kept, "rows": self.rows}

    def note(self) -> str:
        """A sentence for people."""
        text = f"{self.variables} of {self.total} variables start with the values of {self.file}"
        if self.carried:
            text += f"; carried over by token: {', '.join(self.carried)}"
        for path, counts in self.rows.items():
            text += f"; {path}: " + ", ".join(f"{count:,} {way}" for way, count in counts.items())
        if self.rescaled:
            text += f"; other scales than before: {'; '.join(self.rescaled)}"
        if self.compared is False:
            text += "; their Transform graph is unknown, so inputs may mean something else to them"
        return text


def read(
    train: TrainSettings,
    build: Callable[[bool], keras.Model],
    transform: tft.TFTransformOutput | None = None,
    features: Collection[str] = (),
) -> tuple[dict[str, np.ndarray], Loaded]:
    """Reads the weights that the settings name; matches them with the model's variables.

    Args:
        build: makes a model like the one for the weights; with False, without adapters (LoRA),
            which files of Keras and KerasHub do not have.
        transform: of the training; None: there are no data yet.
        features: transformed features that the task uses.

    Raises:
        InitialWeightsError: the weights cannot be read, do not match the model, or belong to
            another Transform graph (:class:`~.transform_graph_match.MeaningError`).
    """
    assert train.initial_weights is not None
    weights_source = source.find(train.initial_weights)
    is_ours = weights_source.kind in (Kind.CHECKPOINT, Kind.SAVED_MODEL)
    model = build(is_ours)
    variables = {variable.path: tuple(variable.shape) for variable in model.weights}
    # The seed sets the states of random generators.
    others = {variable.path for variable in model.variables} - variables.keys()
    if weights_source.kind is Kind.CHECKPOINT:
        weights = _of_checkpoint(weights_source.path)
    elif weights_source.kind is Kind.SAVED_MODEL:
        weights = of_saved_model(weights_source.path)
    elif weights_source.kind is Kind.ESTIMATOR:
        weights = estimator_checkpoint.read(weights_source.path, variables)
    elif weights_source.kind is Kind.KERAS_HUB:
        weights = _of_keras_hub(weights_source.path, model)
    else:
        weights = keras_file.read(weights_source, model)
    weights = {
        path: value
        for path, value in weights.items()
        if path not in others and not path.endswith("/seed_generator_state")
    }
    variables = {
        path: shape
        for path, shape in variables.items()
        if path in weights or not hub.is_adapter(path)
    }
    fitting = transform_graph_match.carried(
        weights_source.path,
        weights,
        model,
        transform,
        features,
        lambda path: any(_names(pattern, path) for pattern in train.initial_weights_skip),
        train.warm_start is not None,
    )
    values = match(weights_source.path, fitting.weights, variables, train.initial_weights_skip)
    for variable in model.weights:
        if variable.path in values:
            values[variable.path] = _cast(weights_source.path, variable, values[variable.path])
    compared = None if transform is None else fitting.compared
    loaded = Loaded(
        train.initial_weights,
        len(values),
        len(variables),
        compared,
        fitting.features,
        fitting.moves,
        tuple(map(str, fitting.rescaled)),
    )
    note = loaded.note()
    _log.info("%s, %s", note, weights_source.kind.value)
    if transform is not None:
        note_weights(note)
    return values, loaded


def note_weights(note: str) -> None:
    """Tells people a sentence about the weights that a training starts with."""
    _progress.info("%s", note, extra={"progress": {"phase": "weights", "note": note}})


def _cast(path: pathlib.Path, variable: keras.Variable, value: np.ndarray) -> np.ndarray:
    """Converts a value to the variable's dtype."""
    dtype = tf.as_dtype(variable.dtype)
    # NumPy reports the kind of bfloat16 as void.
    exact, number = value.dtype.kind in "biu", value.dtype.kind in "biufV"
    if not number or not (exact or dtype.is_floating):
        raise InitialWeightsError(
            path, f"{variable.path} has dtype {value.dtype}, but {dtype.name} in the model"
        )
    with np.errstate(over="ignore"):  # checked below
        cast: np.ndarray = value.astype(dtype.as_numpy_dtype)
    if dtype.is_floating and not np.all(np.isfinite(cast.astype(np.float64))):
        raise InitialWeightsError(
            path,
            f"{variable.path} has values that are not finite in {dtype.name}; use weights from "
            "before the training diverged",
        )
    return cast


def _of_checkpoint(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Variable path -> value; EMA weights replace the weights, as in evaluation and export."""
    step = folder.resolve().name
    if not step.isdecimal():
        raise InitialWeightsError(
            folder, f"the name of a checkpoint's folder is its step, not {step!r}; rename it"
        )
    try:
        state = checkpoint_files.read(folder.resolve()).state
    except checkpoint_files.UnreadableCheckpointError as error:
        raise InitialWeightsError(folder, f"cannot be read: {cleaned(str(error))}") from None
    return {
        name.removeprefix(prefix): value
        for prefix in ("model/", "ema/")  # in this order: the second one replaces the first
        for name, value in state.items()
        if name.startswith(prefix)
    }


def of_saved_model(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Variable path -> value, from a SavedModel that a training exported."""
    try:
        paths = json.loads((folder / VARIABLE_PATHS).read_text())
    except FileNotFoundError:
        raise InitialWeightsError(
            folder,
            f"the SavedModel has no {VARIABLE_PATHS} with the variables' paths; train and push it "
            "again with this version of Stagecraft, or use a checkpoint of its training run",
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
        raise InitialWeightsError(folder, f"cannot be read: {cleaned(str(error))}") from None


def _of_keras_hub(folder: pathlib.Path, model: keras.Model) -> dict[str, np.ndarray]:
    """Variable path -> value, from a preset of KerasHub, or of Hugging Face.

    With the weights of the head, if they are of the model's class.
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


class OtherShape(NamedTuple):
    """A variable whose shape differs from its value's."""

    path: str
    in_file: Shape
    in_model: Shape


class MismatchError(InitialWeightsError):
    """The weights belong to another model."""

    def __init__(
        self,
        source: pathlib.Path,
        missing: Sequence[str],
        unknown: Sequence[str],
        shapes: Sequence[OtherShape],
    ):
        problems = [
            _describe("not in the file", missing),
            _describe("not in the model", unknown),
            _describe(
                "with another shape",
                [
                    f"{each.path} is {each.in_file} in the file, {each.in_model} in the model"
                    for each in shapes
                ],
            ),
        ]
        super().__init__(
            source,
            f"does not match the model: {'; '.join(filter(None, problems))}. Correct the file, or "
            "list the variables to skip in train.initial_weights_skip",
        )
        self.missing = tuple(missing)
        """Paths of variables without a value."""
        self.unknown = tuple(unknown)
        """Names of values without a variable."""
        self.shapes = tuple(shapes)


class UnusedSkipError(InitialWeightsError):
    """``train.initial_weights_skip`` names no variable, or all."""

    def __init__(self, source: pathlib.Path, patterns: Sequence[str], problem: str):
        super().__init__(source, problem)
        self.patterns = tuple(patterns)


def match(
    source: pathlib.Path,
    weights: Mapping[str, np.ndarray],
    variables: Mapping[str, Shape],
    skip: Sequence[str],
) -> dict[str, np.ndarray]:
    """The values to assign, by variable path.

    Args:
        variables: path -> shape, of the model.
        skip: paths, which include all paths below them, and patterns of :mod:`fnmatch`.

    Raises:
        MismatchError: a variable that ``skip`` does not name has no value, or a value of another
            shape; or a value has no variable.
        UnusedSkipError: ``skip`` names no variable, or all.
    """
    names = {*weights, *variables}
    unused = [pattern for pattern in skip if not any(_names(pattern, name) for name in names)]
    if unused:
        raise UnusedSkipError(
            source,
            unused,
            f"train.initial_weights_skip: {', '.join(unused)} names no variable; the variables "
            f"are {_list(sorted(variables))}",
        )
    skipped = {name for name in names if any(_names(pattern, name) for pattern in skip)}
    needed = {path: shape for path, shape in variables.items() if path not in skipped}
    available = {name: value for name, value in weights.items() if name not in skipped}
    if not needed:
        raise UnusedSkipError(
            source, skip, "train.initial_weights_skip leaves nothing to load; name fewer variables"
        )
    missing = sorted(needed.keys() - available.keys())
    unknown = sorted(available.keys() - needed.keys())
    shapes = [
        OtherShape(path, available[path].shape, shape)
        for path, shape in sorted(needed.items())
        if path in available and available[path].shape != shape
    ]
    if missing or unknown or shapes:
        raise MismatchError(source, missing, unknown, shapes)
    return {path: available[path] for path in needed}


def _names(pattern: str, name: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}/") or fnmatch.fnmatchcase(name, pattern)


def _describe(problem: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"{len(names)} variable{'s' if len(names) > 1 else ''} {problem} ({_list(names, '; ')})"


def _list(names: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{separator.join(names[:_NAMED])}{more}"
