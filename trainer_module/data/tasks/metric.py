"""Metrics as sums, so that parts of a batch, replicas and workers add up exactly."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from stagecraft.trainer_module.data.tasks import checks

if TYPE_CHECKING:
    import numpy as np


class Metric(abc.ABC):
    """A number that sums over examples determine."""

    name: str
    size: int
    """How many numbers each example adds to the sums."""
    higher_is_better: bool = True
    cancels: bool = False
    """Whether :meth:`result` subtracts sums of nearly one size: they are added up in float64."""

    @abc.abstractmethod
    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """Terms that each example adds to the sums: a tensor ``[batch, size]`` of ``dtype``.

        Args:
            outputs: the model's, ``[batch, …]``.
        """

    @abc.abstractmethod
    def result(self, sums: np.ndarray) -> float:
        """The metric, from the weighted sums over all examples: float64 ``[size]``.

        NaN where it is not defined, such as the area under a ROC curve for one class.
        """

    def against_constant(self, sums: np.ndarray, count: float) -> tuple[float, float] | None:
        """The value of any constant, and the confidence, 0 to 1, that a model is better.

        By default None: the sums do not tell. The metric ``monitor`` decides; another metric only
        refuses a model, by a confidence of 0.

        Args:
            sums: as for :meth:`result`.
            count: examples of weight 1 that show as much as these.
        """
        return None

    def sums(self, outputs: Any, targets: Any, weights: Any, dtype: Any) -> Any:
        """The weighted sums over a batch: ``[size]``. ``weights``: float ``[batch]``."""
        import tensorflow as tf

        terms = self.terms(outputs, targets, dtype)
        checks.rows(f"the metric {self.name}", terms, weights, self.size)
        return tf.reduce_sum(terms * tf.cast(weights, dtype)[:, tf.newaxis], axis=0)


def dtype_of_sums(metrics: Iterable[Metric], dtype: Any) -> Any:
    """``dtype``, or float64 if a metric needs it."""
    import tensorflow as tf

    return tf.float64 if any(each.cancels for each in metrics) else dtype


class Mean(Metric):
    """The weighted mean of a number per example."""

    size = 2

    def __init__(
        self, name: str, values: Callable[[Any, Any], Any], *, higher_is_better: bool = True
    ):
        """``values``: maps outputs and targets to ``[batch]``, or ``[batch, …]`` for its mean."""
        self.name, self._values, self.higher_is_better = name, values, higher_is_better

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """``[value, 1]`` of each example."""
        import tensorflow as tf

        values = tf.cast(self._values(outputs, targets), dtype)
        if not values.shape.rank:
            return values  # refused by sums
        values = tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))
        return tf.stack([values, tf.ones_like(values)], axis=1)

    def result(self, sums: np.ndarray) -> float:
        """The quotient; undefined without examples."""
        total, weight = sums
        return float(total / weight) if weight else math.nan


class Ratio(Metric):
    """A function of a quotient of sums, such as the errors by the tokens of all examples."""

    size = 2

    def __init__(
        self,
        name: str,
        parts: Callable[[Any, Any, Any], tuple[Any, Any]],
        finish: Callable[[float], float] = float,
        *,
        higher_is_better: bool = True,
    ):
        """``parts``: maps outputs, targets and dtype to both sums of each example, ``[batch]``."""
        self.name, self._parts, self._finish = name, parts, finish
        self.higher_is_better = higher_is_better

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """Numerator and denominator of each example."""
        import tensorflow as tf

        parts = self._parts(outputs, targets, dtype)
        return tf.stack([tf.cast(part, dtype) for part in parts], axis=1)

    def result(self, sums: np.ndarray) -> float:
        """``finish`` of the quotient; undefined without a denominator, infinite if too large."""
        total, count = sums
        try:
            return self._finish(float(total / count)) if count else math.nan
        except OverflowError:
            return math.inf


class MeanIoU(Metric):
    """Mean over the classes of intersection by union of predicted and actual pixels.

    As in ``keras.metrics.MeanIoU``, a class that neither occurs nor is predicted does not count.
    """

    name = "mean_iou"

    def __init__(self, num_classes: int):
        """``num_classes``: of a pixel."""
        self._classes, self.size = num_classes, 2 * num_classes

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """Pixels in intersection and union of each class: ``[batch, 2 * classes]``.

        Args:
            outputs: logits ``[batch, height, width, classes]``.
            targets: int64 ``[batch, height, width]``.
            dtype: of the result.
        """
        import tensorflow as tf

        predicted = tf.argmax(outputs, axis=-1, output_type=targets.dtype)
        found, actual = (
            tf.one_hot(each, self._classes, True, False) for each in (predicted, targets)
        )
        counts = [
            tf.math.count_nonzero(pixels, axis=[1, 2], dtype=dtype)
            for pixels in (found & actual, found | actual)
        ]
        return tf.concat(counts, axis=1)

    def result(self, sums: np.ndarray) -> float:
        """The mean; undefined without pixels."""
        intersections, unions = sums.reshape(2, self._classes)
        known = unions > 0
        return float((intersections[known] / unions[known]).mean()) if known.any() else math.nan
