"""A batch of examples: inputs, targets and weights, each a tensor or a nested structure of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

Nest = Any
"""A tensor, or a dictionary, tuple or list of nests."""


class Batch(NamedTuple):
    """The input of a step. All tensors have the batch as first dimension."""

    inputs: Nest
    """Inputs of the model; pictures: float32 ``[batch, height, width, channels]``."""
    targets: Nest
    """Targets of the loss; classes: int64 ``[batch]``."""
    weights: tf.Tensor
    """float32 ``[batch]``: the weight of each example; 0 is padding."""


def cut(nest: Nest, *sizes: int) -> Nest:
    """``[n, …]`` -> ``[*sizes, …]``, in each tensor; one of the sizes may be -1."""
    return tf.nest.map_structure(lambda part: tf.reshape(part, [*sizes, *part.shape[1:]]), nest)


def take(nest: Nest, *indices: tf.Tensor | int) -> Nest:
    """``part[indices]`` of each tensor."""
    return tf.nest.map_structure(lambda part: part[indices], nest)


def size(batch: Batch) -> tf.Tensor:
    """Number of examples, with padding: int32 scalar."""
    return tf.shape(batch.weights)[0]


def to_arrays(name: str, nest: Nest) -> dict[str, np.ndarray]:
    """The leaves of a nest by path: ``inputs``, or ``inputs/age`` in a dictionary."""
    if isinstance(nest, Mapping):
        items = nest.items()
    elif isinstance(nest, (tuple, list)):
        items = {str(index): value for index, value in enumerate(nest)}.items()
    else:
        return {name: np.asarray(nest)}
    leaves: dict[str, np.ndarray] = {}
    for key, value in items:
        leaves |= to_arrays(f"{name}/{key}", value)
    return leaves


def from_arrays(name: str, arrays: Mapping[str, np.ndarray]) -> Nest:
    """The inverse of :func:`to_arrays`; keys that are numbers make a tuple."""
    if name in arrays:
        return arrays[name]
    keys = dict.fromkeys(
        path.removeprefix(f"{name}/").split("/")[0]
        for path in arrays
        if path.startswith(f"{name}/")
    )
    values = {key: from_arrays(f"{name}/{key}", arrays) for key in keys}
    if all(key.isdigit() for key in values):
        return tuple(values[key] for key in sorted(values, key=int))
    return values
