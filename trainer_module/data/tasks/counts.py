"""Metrics of the tokens or pixels of an example."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stagecraft.trainer_module.data.tasks.metric import Metric

if TYPE_CHECKING:
    import numpy as np


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
