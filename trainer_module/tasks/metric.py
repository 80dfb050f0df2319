"""Metrics as sums, so that parts of a batch, replicas and workers add up exactly."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class Metric(abc.ABC):
    """A number that sums over examples determine."""

    name: str
    size: int
    """Length of the vector of sums."""
    higher_is_better: bool = True

    @abc.abstractmethod
    def sums(self, outputs: Any, targets: Any, weights: Any, dtype: Any) -> Any:
        """The sums over a batch: a tensor ``[size]`` of ``dtype``.

        Args:
            outputs: the model's, ``[batch, …]``.
            weights: float ``[batch]``; an example of weight 0 counts as absent.
        """

    @abc.abstractmethod
    def result(self, sums: np.ndarray) -> float:
        """The metric, from the sums over all examples: float64 ``[size]``."""


class Mean(Metric):
    """The weighted mean of a number per example."""

    size = 2

    def __init__(
        self, name: str, values: Callable[[Any, Any], Any], *, higher_is_better: bool = True
    ):
        """``values``: maps outputs and targets to ``[batch]``, or ``[batch, …]`` for its mean."""
        self.name, self._values, self.higher_is_better = name, values, higher_is_better

    def sums(self, outputs: Any, targets: Any, weights: Any, dtype: Any) -> Any:
        """``[weighted sum, sum of weights]``."""
        import tensorflow as tf

        values = tf.cast(self._values(outputs, targets), dtype)
        values = tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))
        weights = tf.cast(weights, dtype)
        return tf.stack([tf.reduce_sum(values * weights), tf.reduce_sum(weights)])

    def result(self, sums: np.ndarray) -> float:
        """The quotient; 0 without examples."""
        total, weight = sums
        return float(total / weight) if weight else 0.0
