"""The slices of a weight that shards divide."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf


class Split(NamedTuple):
    """Along which axis a tensor is divided, and how."""

    axis: int
    sizes: tuple[int, ...]
    """Length of each shard's slice, in order."""

    def cut(self, tensor: Any, shard: int) -> Any:
        """A shard's slice of the whole tensor."""
        begin = sum(self.sizes[:shard])
        places = [slice(None)] * len(tensor.shape)
        places[self.axis] = slice(begin, begin + self.sizes[shard])
        return tensor[tuple(places)]

    def join(self, slices: Sequence[Any]) -> tf.Tensor:
        """The whole tensor of all shards' slices."""
        return tf.concat(slices, self.axis)

    def shape(self, whole: Sequence[int], shard: int) -> tuple[int, ...]:
        """The shape of a shard's slice."""
        shape = list(whole)
        shape[self.axis] = self.sizes[shard]
        return tuple(shape)


def even(size: int, count: int) -> tuple[int, ...]:
    """Lengths of ``count`` slices; the first ones are longer by one if they do not divide."""
    return tuple(size // count + (shard < size % count) for shard in range(count))


class Slice:
    """One shard's slice of a variable of the template: what the engines hold and update."""

    def __init__(self, variable: keras.Variable, split: Split, shard: int):
        self.variable, self.split, self.shard = variable, split, shard
        self.path: str = variable.path
        self.dtype: str = variable.dtype
        self.trainable: bool = variable.trainable
        self.constraint = variable.constraint
        self.shape = split.shape(variable.shape, shard)

    @property
    def value(self) -> tf.Tensor:
        """The slice of the template's value."""
        return self.cut(self.variable.value)

    def cut(self, whole: Any) -> Any:
        """The slice of a tensor that has the variable's shape."""
        return self.split.cut(whole, self.shard)


class Joined:
    """One variable whose slices are on several devices, as a checkpoint sees it: whole."""

    def __init__(self, variables: Sequence[Any], division: Any):
        """Takes the slices in order.

        Args:
            division: :class:`Split`, or what else has its ``cut`` and ``join``.
        """
        self._variables, self._division = variables, division

    def read_value(self) -> tf.Tensor:
        """The whole value, on the host."""
        with tf.device("CPU:0"):
            return self._division.join(list(map(_value, self._variables)))

    def numpy(self) -> np.ndarray:
        """The whole value."""
        return np.asarray(self.read_value().numpy())

    def assign(self, value: np.ndarray) -> None:
        """Sets all slices."""
        for index, variable in enumerate(self._variables):
            variable.assign(self._division.cut(value, index))


def _value(variable: Any) -> tf.Tensor:
    read = getattr(variable, "read_value", None)
    return read() if read else tf.convert_to_tensor(variable)


@dataclasses.dataclass(frozen=True)
class Way:
    """How one layer is divided."""

    name: str
    splits: Mapping[str, Split]
    """Weight, by its path below the layer (``kernel``, ``query/kernel``) -> its slices. Weights
    that are not named stay on the first device."""
