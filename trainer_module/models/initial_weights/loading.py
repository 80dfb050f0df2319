"""Loads ``train.initial_weights`` into a new model, on whatever devices it lies."""

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
    """What a model begins with."""

    file: str
    """The setting."""

    variables: int
    """How many were loaded."""

    total: int
    """How many the model has."""

    def note(self) -> str:
        """For people."""
        return f"{self.variables} of {self.total} variables begin with the values of {self.file}"


class InitialWeights(NamedTuple):
    """Values for a model's variables."""

    values: dict[str, np.ndarray]
    """Variable path -> value; what is not here stays as the seed has it."""

    loaded: Loaded

    def assign(self, model: keras.Model) -> None:
        """Sets the variables of a model, in the scope that it was built in."""
        for variable in model.weights:
            if variable.path in self.values:
                variable.assign(self.values[variable.path])


def read(train: TrainSettings, build: Callable[[], keras.Model]) -> InitialWeights:
    """Reads the weights that the settings name, and holds them against the model.

    Args:
        train: ``initial_weights`` is given.
        build: builds the model on the host, in no strategy's scope.

    Raises:
        InitialWeightsError: they cannot be read, are not finite, or do not match the model.
    """
    assert train.initial_weights is not None
    found = source.find(train.initial_weights)
    model = build()
    variables = {variable.path: tuple(variable.shape) for variable in model.weights}
    # The states of random generators begin with the seed.
    others = {variable.path for variable in model.variables} - variables.keys()
    if found.kind is Kind.CHECKPOINT:
        weights = stored.of_checkpoint(found.path)
    elif found.kind is Kind.SAVED_MODEL:
        weights = stored.of_saved_model(found.path)
    else:
        weights = keras_file.read(found, model)
    weights = {
        path: value
        for path, value in weights.items()
        if path not in others and not path.endswith("/seed_generator_state")
    }
    values = match(found.path, weights, variables, train.skipped_weights)
    for variable in model.weights:
        if variable.path in values:
            values[variable.path] = _fitting(found.path, variable, values[variable.path])
    loaded = Loaded(train.initial_weights, len(values), len(variables))
    _log.info("%s, %s", loaded.note(), found.kind.value)
    return InitialWeights(values, loaded)


def _fitting(path: pathlib.Path, variable: keras.Variable, value: np.ndarray) -> np.ndarray:
    """The value in the variable's dtype."""
    dtype = tf.as_dtype(variable.dtype)
    # NumPy calls bfloat16, which is not its own, void.
    exact, number = value.dtype.kind in "biu", value.dtype.kind in "biufV"
    if not number or not (exact or dtype.is_floating):
        raise InitialWeightsError(
            path, f"{variable.path} has dtype {value.dtype}, in the model {dtype.name}"
        )
    with np.errstate(over="ignore"):  # said below
        cast: np.ndarray = value.astype(dtype.as_numpy_dtype)
    if dtype.is_floating and not np.all(np.isfinite(cast.astype(np.float64))):
        raise InitialWeightsError(
            path,
            f"{variable.path} has values that are not finite in {dtype.name}; take weights from "
            "before the training diverged",
        )
    return cast
