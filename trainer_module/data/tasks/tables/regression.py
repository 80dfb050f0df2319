"""A number to predict from a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagecraft.trainer_module.data.tasks import metric
from stagecraft.trainer_module.data.tasks.tables.table import Table

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Nest
    from stagecraft.trainer_module.settings import TrainSettings


class Regression(Table):
    """Squared error of a float label, in the label's own unit."""

    name = "regression"
    description = "a number from columns of a table"
    monitor = "mse"
    smooths = False
    report_sections = ("residuals", "features")

    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """Normal numbers."""
        return draw.standard_normal(count)

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``prediction``: float32 ``[batch]``."""
        import tensorflow as tf

        return {"prediction": tf.cast(outputs[:, 0], tf.float32)}

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """``(prediction - label) ** 2``."""
        return _error(outputs, targets, dtype) ** 2

    def metrics(self) -> Sequence[metric.Metric]:
        """Mean squared and mean absolute error, and R²."""
        import tensorflow as tf

        return (
            metric.Mean("mse", lambda *pair: _error(*pair) ** 2, higher_is_better=False),
            metric.Mean("mae", lambda *pair: tf.abs(_error(*pair)), higher_is_better=False),
            R2(),
        )

    def sampled(self, outputs: Nest, targets: Nest) -> Mapping[str, Any]:
        """``predicted`` and ``actual``."""
        return {"predicted": outputs[:, 0], "actual": targets}


class R2(metric.Metric):
    """The coefficient of determination: the share of the label's variance that is explained."""

    name = "r2"
    size = 4
    cancels = True

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """``[error ** 2, label, label ** 2, 1]`` of each example."""
        import tensorflow as tf

        squares = tf.cast(_error(outputs, targets, dtype) ** 2, dtype)
        labels = tf.cast(targets, dtype)
        return tf.stack([squares, labels, labels**2, tf.ones_like(labels)], axis=1)

    def result(self, sums: np.ndarray) -> float:
        """``1 - residual / total``; 0 where the labels do not vary."""
        residual, labels, squares, weight = sums
        total = squares - labels**2 / weight if weight else 0.0
        return float(1 - residual / total) if total > _ROUNDING * squares else 0.0


_ROUNDING = 1e-12
"""More than the relative error of a sum in float64."""


def _error(outputs: Any, targets: Any, dtype: Any = "float32") -> Any:
    """``[batch]``, at least as precise as ``dtype``."""
    import tensorflow as tf

    predictions = outputs[:, 0]
    if predictions.dtype != tf.float64:
        predictions = tf.cast(predictions, dtype)
    return predictions - tf.cast(targets, predictions.dtype)
