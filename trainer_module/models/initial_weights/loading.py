"""Loads ``train.initial_weights`` into a new model, on any devices."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.models.initial_weights import keras_file, source, stored
from stagecraft.trainer_module.models.initial_weights.matching import match
from stagecraft.trainer_module.models.initial_weights.source import InitialWeightsError, Kind
from stagecraft.trainer_module.settings import TrainSettings

_log = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """A report on the loaded weights."""

    file: str
    """The setting."""
    variables: int
    """Number of variables loaded."""
    total: int
    """Number of the model's variables."""

    def note(self) -> str:
        """A sentence for people."""
        return f"{self.variables} of {self.total} variables start with the values of {self.file}"


class InitialWeights(NamedTuple):
    """Values for a model's variables."""

    values: dict[str, np.ndarray]
    """Variable path -> value; other variables keep their random values."""
    loaded: Loaded

    def assign(self, model: keras.Model) -> None:
        """Sets the variables of a model, in the scope in which it was built."""
        for variable in model.weights:
            if variable.path in self.values:
                variable.assign(self.values[variable.path])


def read(train: TrainSettings, build: Callable[[], keras.Model]) -> InitialWeights:
    """Reads the weights that the settings name, and matches them with the model.

    ``build`` builds the model on the host, outside of any strategy's scope.

    Raises:
        InitialWeightsError: the weights are unreadable, not finite, or do not match the model.
    """
    assert train.initial_weights is not None
    weights_source = source.find(train.initial_weights)
    model = build()
    variables = {variable.path: tuple(variable.shape) for variable in model.weights}
    # The seed sets the states of random generators.
    others = {variable.path for variable in model.variables} - variables.keys()
    if weights_source.kind is Kind.CHECKPOINT:
        weights = stored.of_checkpoint(weights_source.path)
    elif weights_source.kind is Kind.SAVED_MODEL:
        weights = stored.of_saved_model(weights_source.path)
    else:
        weights = keras_file.read(weights_source, model)
    weights = {
        path: value
        for path, value in weights.items()
        if path not in others and not path.endswith("/seed_generator_state")
    }
    values = match(weights_source.path, weights, variables, train.skipped_weights)
    for variable in model.weights:
        if variable.path in values:
            values[variable.path] = _cast(weights_source.path, variable, values[variable.path])
    loaded = Loaded(train.initial_weights, len(values), len(variables))
    _log.info("%s, %s", loaded.note(), weights_source.kind.value)
    return InitialWeights(values, loaded)


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
