"""Metrics of a classifier, all computed from one table of sums.

TFMA has such metrics through Keras. Each of these reads all examples of each slice again, in eager
TensorFlow, and its CalibrationPlot flattens classes into one binary problem over every (example,
class) pair. Here each example is read once. Top-label calibration uses equal-width bins, as in Guo
et al. 2017, "On Calibration of Modern Neural Networks", section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.metrics.metric_types import MetricKey
from tensorflow_model_analysis.proto import metrics_for_slice_pb2

from stagecraft.components.evaluator.evaluation import ACCURACY, CALIBRATION_ERROR, LOSS
from stagecraft.components.evaluator.example_metric import ExampleCombiner, per_key

NAME = CALIBRATION_ERROR
PLOT_NAME = "top_label_calibration"
BINS = 15  # of confidence, equally wide
TOP = 3  # of top-k accuracy
EPSILON = 1e-7  # lower bound of a probability in a loss, as in Keras (``keras.config.epsilon``)
Table = np.ndarray
"""float64 ``[bins, 5]``, weighted sums over the examples of a bin: examples, correct predictions,
confidence, labels among the top k, losses in nats."""


class _MeanMetric(metric_types.Metric):
    """The mean over all examples of one column of the table."""

    def __init__(self, name: str, column: int):
        def compute(key: MetricKey, config: Any) -> metric_types.MetricComputations:
            table = _table(key, config)

            def mean(metrics: dict[Any, Table]) -> dict[Any, float]:
                sums = metrics[table.keys[0]].sum(axis=0)
                return {key: sums[column] / max(sums[0], 1e-12)}

            return [table, _derived(key, mean)]

        super().__init__(per_key(compute), name=name)


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
        super().__init__(per_key(_calibration), name=name)


for each in (Accuracy, TopAccuracy, CrossEntropy, ExpectedCalibrationError):
    metric_types.register_metric(each)


def _table(key: MetricKey, eval_config: Any) -> metric_types.MetricComputation:
    """The computation of the table. It is equal for all metrics, so that TFMA runs it once."""
    key = key._replace(name="_top_labels")
    combiner = _TableCombiner(key, eval_config)
    return metric_types.MetricComputation([key], preprocessors=None, combiner=combiner)


def _derived(
    key: MetricKey, result: Callable[[dict[Any, Table]], dict[Any, Any]]
) -> metric_types.DerivedMetricComputation:
    return metric_types.DerivedMetricComputation(keys=[key], result=result)


def _calibration(key: MetricKey, eval_config: Any) -> metric_types.MetricComputations:
    table = _table(key, eval_config)
    (table_key,) = table.keys
    plot_key = metric_types.PlotKey(*key._replace(name=PLOT_NAME))

    def error(metrics: dict[Any, Table]) -> dict[Any, float]:
        examples, correct, confidence, *_ = metrics[table_key].T
        gap = np.abs(correct - confidence).sum()
        return {key: float(gap / max(examples.sum(), 1e-12))}

    def plot(metrics: dict[Any, Table]) -> dict[Any, Any]:
        buckets = metrics_for_slice_pb2.CalibrationHistogramBuckets()
        for i, (examples, correct, confidence, *_) in enumerate(metrics[table_key]):
            buckets.buckets.add(
                lower_threshold_inclusive=i / BINS,
                upper_threshold_exclusive=(i + 1) / BINS,
                total_weighted_label={"value": correct},
                total_weighted_refined_prediction={"value": confidence},
                num_weighted_examples={"value": examples},
            )
        return {plot_key: buckets}

    return [table, _derived(key, error), _derived(plot_key, plot)]


class _TableCombiner(ExampleCombiner):
    def create_accumulator(self) -> Table:
        return np.zeros([BINS, 5])

    def add_input(self, accumulator: Table, element: metric_types.StandardMetricInputs) -> Table:
        for label, probabilities, weight in self.examples(element):
            top = int(probabilities.argmax())
            confidence, of_label = float(probabilities[top]), float(probabilities[label])
            above = int((probabilities > of_label).sum())
            loss = -math.log(min(max(of_label, EPSILON), 1 - EPSILON))
            index = min(int(confidence * BINS), BINS - 1)
            row = np.array([1, top == label, confidence, above < TOP, loss])
            accumulator[index] += weight * row
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Table]) -> Table:
        return np.sum(list(accumulators), axis=0)
