"""ZeRO stage 1: the replicas of a stage divide its optimizer slots.

Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter models",
arXiv 1910.02054, section 5.1. Of each weight, as a vector, every replica has an equal *slice*. In a
step it adds up the slices of all replicas' gradients (reduce-scatter), updates its slice of the
weight with its slice of the slots, and copies the other slices (all-gather). Together this sends as
much as an all-reduce. It works for optimizers that treat each entry of a weight by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def size(shape: Sequence[int], count: int) -> int:
    """Entries of a slice; the last slice ends with zeros if the weight is not divisible."""
    return -(-math.prod(shape) // count)


def cut(tensor: Any, index: int, count: int) -> tf.Tensor:
    """The ``index``-th of ``count`` slices of a tensor: ``[size]``."""
    entries, flat = size(tensor.shape, count), tf.reshape(tensor, [-1])
    begin = min(index * entries, flat.shape[0])
    own = flat[begin : begin + entries]
    return tf.pad(own, [[0, entries - own.shape[0]]])


def joined(slices: Sequence[Any], shape: Sequence[int]) -> tf.Tensor:
    """The tensor of all slices."""
    return tf.reshape(tf.concat(slices, axis=0)[: math.prod(shape)], shape)


class Slices:
    """One variable whose slices are on several replicas, as a checkpoint sees it: undivided."""

    def __init__(self, variables: Sequence[Any], shape: Sequence[int]):
        """``variables``: of the replicas, in order; ``shape``: of the whole."""
        self._variables, self._shape = variables, tuple(shape)

    def read_value(self) -> tf.Tensor:
        """The whole value, on the host."""
        with tf.device("CPU:0"):
            return joined([tf.convert_to_tensor(each) for each in self._variables], self._shape)

    def numpy(self) -> np.ndarray:
        """The whole value."""
        return np.asarray(self.read_value().numpy())

    def assign(self, value: np.ndarray) -> None:
        """Sets all slices."""
        whole = tf.convert_to_tensor(value)
        for index, variable in enumerate(self._variables):
            variable.assign(cut(whole, index, len(self._variables)))
