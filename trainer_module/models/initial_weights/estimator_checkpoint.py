"""Reads weights by variable path from a checkpoint of an Estimator, ``model.ckpt-1000``.

The names of its variables are those of TensorFlow 1. Optimizer slots and the step are left out.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import tensorflow as tf

from stagecraft.common.errors import cleaned
from stagecraft.trainer_module import safe_names
from stagecraft.trainer_module.models.initial_weights.source import InitialWeightsError

_PART = re.compile(r"/part_(\d+)(?=/|$)")
_OTHERS = re.compile(
    r"^(global_step|beta[12]_power|training/.*|loss/.*|signal_early_stopping/.*)$|"
    r"(^|/)(beta[12]_power|ExponentialMovingAverage)$"
)
"""Variables that are no weights."""

_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"

_CANNED: Mapping[str, tuple[str, ...]] = {
    r"(?:^|/)linear(?:/linear_model)?/(.+)/weights$": (
        "linear_{}/kernel",
        "linear_{}/embeddings",
    ),
    r"(?:^|/)linear(?:/linear_model)?/bias_weights?$": ("linear_bias/bias",),
    r"(?:^|/)(hiddenlayer_\d+|logits)/(kernel|bias)$": ("dnn_{}/{}",),
    r"(?:^|/)(batchnorm_\d+)/(gamma|beta|moving_mean|moving_variance)$": ("dnn_{}/{}",),
    r"(?:^|/)([^/]+)/embedding_weights$": ("dnn_{}/embeddings",),
    r"(?:^|/)([^/]+_shared_embedding)$": ("dnn_{}/embeddings",),
}
"""Name of a canned Estimator's variable -> paths in the models of ``stagecraft.estimator``."""


def read(prefix: pathlib.Path, paths: Collection[str]) -> dict[str, np.ndarray]:
    """Variable path -> value; a value without a variable keeps its name in the file.

    Args:
        prefix: the checkpoint without ``.index``.
        paths: of the model's variables.

    Raises:
        InitialWeightsError: the file is damaged, or is a checkpoint of objects.
    """
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = reader.get_variable_to_shape_map()
        if _OBJECTS in names:
            raise InitialWeightsError(
                prefix,
                "was written by tf.train.Checkpoint, whose names are not those of variables; load "
                "it with the code that wrote it, and save the model as .weights.h5",
            )
        values = {name: np.asarray(reader.get_tensor(name)) for name in _weights(names)}
    except InitialWeightsError:
        raise
    except Exception as error:  # for a damaged file TensorFlow raises IndexError, RuntimeError, …
        raise InitialWeightsError(prefix, f"cannot be read: {cleaned(str(error))}") from None
    return {path_of(name, paths): value for name, value in _joined(prefix, values).items()}


def path_of(name: str, paths: Collection[str]) -> str:
    """The path of the variable that a name in a checkpoint stands for; the name if there is none.

    A model's path may begin with the model's own name.
    """
    for candidate in (*_candidates(name), name):
        if candidate in paths:
            return candidate
    below = [path for path in paths if path.partition("/")[2] == name]
    return below[0] if len(below) == 1 else name


def _candidates(name: str) -> Iterator[str]:
    for pattern, forms in _CANNED.items():
        if found := re.search(pattern, name):
            groups = found.groups()
            for form in forms:
                layer, variable = form.split("/")
                named = safe_names.safe(layer.format(*groups))
                yield f"{named}/{variable.format(*groups[1:])}"


def _weights(names: Collection[str]) -> list[str]:
    """Names that are neither slots nor other state: a slot has the name of a weight in front."""
    whole = {_PART.sub("", name) for name in names}
    kept = []
    for name in sorted(names):
        parts = _PART.sub("", name).split("/")
        above = {"/".join(parts[:count]) for count in range(1, len(parts))}
        if not above & whole and not _OTHERS.search(name):
            kept.append(name)
    return kept


def _joined(prefix: pathlib.Path, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values, with the parts of a partitioned variable joined along its first dimension."""
    result: dict[str, np.ndarray] = {}
    parts: dict[str, dict[int, np.ndarray]] = {}
    for name, value in values.items():
        if found := _PART.search(name):
            parts.setdefault(_PART.sub("", name), {})[int(found[1])] = value
        else:
            result[name] = value
    for name, numbered in parts.items():
        if sorted(numbered) != list(range(len(numbered))):
            missing = min(set(range(len(numbered))) - set(numbered))
            raise InitialWeightsError(prefix, f"lacks {name}/part_{missing}")
        result[name] = np.concatenate([numbered[number] for number in sorted(numbered)])
    return result
