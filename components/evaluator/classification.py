"""Metrics of a classifier, all computed from the same sums.

TFMA has such metrics through Keras. Each of these reads all examples of each slice again, in eager
TensorFlow, and its CalibrationPlot flattens classes into one binary problem over every (example,
class) pair. Here each example is read once. Top-label calibration uses equal-width bins, as in Guo
et al. 2017, "On Calibration of Modern Neural Networks", section 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.metrics.metric_types import MetricKey, PlotKey
from tensorflow_model_analysis.proto import metrics_for_slice_pb2

from stagecraft.components.evaluator.evaluation import (
    ACCURACY,
    CALIBRATION_ERROR,
    LOSS,
    TOP_LABEL_CALIBRATION,
)
from stagecraft.components.evaluator.example_metric import per_key
from stagecraft.components.evaluator.top_labels import BINS, TOP, Sums, computations

NAME = CALIBRATION_ERROR
CONFUSION_MATRIX = "multi_class_confusion_matrix_plot"
"""TFMA's name of this plot."""


class _MeanMetric(metric_types.Metric):
    """The mean over all examples of one column of the table."""

    def __init__(self, name: str, column: int):
        def mean(sums: Sums) -> float:
            totals = sums.table.sum(axis=0)
            return float(totals[column] / max(totals[0], 1e-12))

        super().__init__(
            per_key(lambda key, config: computations(key, config, (key, mean))), name=name
        )


class Accuracy(_MeanMetric):
    """Share of the examples whose label has the highest probability."""

    def __init__(self, name: str = ACCURACY):
        super().__init__(name, 1)


class TopAccuracy(_MeanMetric):
    """Share of the examples whose label is among the three with the highest probability."""

    def __init__(self, name: str = f"top_{TOP}_accuracy"):
        super().__init__(name, 3)


class CrossEntropy(_MeanMetric):
    """Mean of ``-log(probability of the label)``, in nats, clipped as in Keras."""

    def __init__(self, name: str = LOSS):
        super().__init__(name, 4)


class ExpectedCalibrationError(metric_types.Metric):
    """Mean of ``|accuracy - confidence|`` over bins of confidence, weighted by examples.

    Also yields the plot ``top_label_calibration`` (``CalibrationHistogramBuckets``). Each bin has
    the sum of correct predictions as label, the sum of confidences as prediction, and its examples.
    """

    def __init__(self, name: str = NAME):
        def compute(key: MetricKey, config: Any) -> metric_types.MetricComputations:
            plot_key = PlotKey(*key._replace(name=TOP_LABEL_CALIBRATION))
            return computations(key, config, (key, _calibration_error), (plot_key, _calibration))

        super().__init__(per_key(compute), name=name)


class ConfusionMatrix(metric_types.Metric):
    """The plot ``multi_class_confusion_matrix_plot``, as TFMA's ``MultiClassConfusionMatrixPlot``.

    It has one matrix, for the threshold 0, with the weight of each pair of label and prediction.
    """

    def __init__(self, name: str = CONFUSION_MATRIX):
        def compute(key: MetricKey, config: Any) -> metric_types.MetricComputations:
            return computations(key, config, (PlotKey(*key), _confusion))

        super().__init__(per_key(compute), name=name)


for each in (Accuracy, TopAccuracy, CrossEntropy, ExpectedCalibrationError, ConfusionMatrix):
    metric_types.register_metric(each)


def _calibration_error(sums: Sums) -> float:
    examples, correct, confidence, *_ = sums.table.T
    return float(np.abs(correct - confidence).sum() / max(examples.sum(), 1e-12))


def _calibration(sums: Sums) -> metrics_for_slice_pb2.CalibrationHistogramBuckets:
    buckets = metrics_for_slice_pb2.CalibrationHistogramBuckets()
    for i, (examples, correct, confidence, *_) in enumerate(sums.table):
        buckets.buckets.add(
            lower_threshold_inclusive=i / BINS,
            upper_threshold_exclusive=(i + 1) / BINS,
            total_weighted_label={"value": correct},
            total_weighted_refined_prediction={"value": confidence},
            num_weighted_examples={"value": examples},
        )
    return buckets


def _confusion(sums: Sums) -> metrics_for_slice_pb2.MultiClassConfusionMatrixAtThresholds:
    plot = metrics_for_slice_pb2.MultiClassConfusionMatrixAtThresholds()
    matrix = plot.matrices.add(threshold=0.0)
    for (actual, predicted), (weight, _) in sorted(sums.cells.items(), key=lambda cell: cell[0]):
        matrix.entries.add(
            actual_class_id=actual, predicted_class_id=predicted, num_weighted_examples=weight
        )
    return plot
