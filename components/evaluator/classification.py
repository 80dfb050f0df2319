"""What the Evaluator measures of a classifier, from one table that is counted once.

TFMA has such metrics through Keras, each of which goes through all examples of each slice by
itself, in eager TensorFlow; and its CalibrationPlot flattens classes into one binary problem and
takes every (example, class) pair. Here an example is looked at once, and all metrics come from the
sums. Top-label calibration is in equal-width bins, as in Guo et al. 2017, "On Calibration of Modern
Neural Networks", section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import metrics_for_slice_pb2

from stagecraft.components.evaluator.labelled import LabelledCombiner

NAME = "expected_calibration_error"
PLOT_NAME = "top_label_calibration"

BINS = 15
"""Of confidence, equally wide."""

TOP = 3
"""Of top-k accuracy."""

EPSILON = 1e-7
"""Keras takes no probability for smaller (``keras.config.epsilon``)."""

Table = np.ndarray
"""float64 ``[bins, 5]``, sums over the examples of a bin, by weight: examples, right answers,
confidence, answers among the top k, losses in nats."""


class _TableMetric(metric_types.Metric):
    """A metric that is a function of the table's sums over all bins."""

    def __init__(self, name: str, result: Callable[[Table], float]):
        # TFMA reads the names of the arguments, to know which of them to give.
        def computations(
            name: str,
            eval_config: Any = None,
            model_name: str = "",
            output_name: str = "",
            example_weighted: bool = False,
        ) -> metric_types.MetricComputations:
            table, where = _table(eval_config, model_name, output_name, example_weighted)
            key = metric_types.MetricKey(name=name, **where)

            def derive(metrics: dict[Any, Table]) -> dict[Any, float]:
                return {key: result(metrics[table.keys[0]].sum(axis=0))}

            return [table, metric_types.DerivedMetricComputation(keys=[key], result=derive)]

        super().__init__(metric_util.merge_per_key_computations(computations), name=name)


class Accuracy(_TableMetric):
    """Share of the examples whose label has the highest probability."""

    def __init__(self, name: str = "accuracy"):
        super().__init__(name, lambda sums: sums[1] / max(sums[0], 1e-12))


class TopAccuracy(_TableMetric):
    """Share of the examples whose label is among the three with the highest probability."""

    def __init__(self, name: str = f"top_{TOP}_accuracy"):
        super().__init__(name, lambda sums: sums[3] / max(sums[0], 1e-12))


class CrossEntropy(_TableMetric):
    """Mean of ``-log(probability of the label)``, in nats, as Keras clips it."""

    def __init__(self, name: str = "loss"):
        super().__init__(name, lambda sums: sums[4] / max(sums[0], 1e-12))


class ExpectedCalibrationError(metric_types.Metric):
    """Mean of ``|accuracy - confidence|`` over bins of confidence, weighted by examples.

    Also yields the plot ``top_label_calibration`` (``CalibrationHistogramBuckets``): per bin,
    the summed correctness as label, the summed confidence as prediction, and the examples.
    """

    def __init__(self, name: str = NAME):
        super().__init__(metric_util.merge_per_key_computations(_calibration), name=name)


for each in (Accuracy, TopAccuracy, CrossEntropy, ExpectedCalibrationError):
    metric_types.register_metric(each)


def _table(
    eval_config: Any, model_name: str, output_name: str, example_weighted: bool
) -> tuple[metric_types.MetricComputation, dict[str, Any]]:
    """The table, equal for all metrics, so that TFMA counts it once; and where it is."""
    where = {
        "model_name": model_name,
        "output_name": output_name,
        "example_weighted": example_weighted,
    }
    key = metric_types.MetricKey(name="_top_labels", **where)
    combiner = _TableCombiner(key, eval_config)
    return metric_types.MetricComputation([key], preprocessors=None, combiner=combiner), where


def _calibration(
    name: str,
    eval_config: Any = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    table, where = _table(eval_config, model_name, output_name, example_weighted)
    (table_key,) = table.keys
    metric_key = metric_types.MetricKey(name=name, **where)
    plot_key = metric_types.PlotKey(name=PLOT_NAME, **where)

    def error(metrics: dict[Any, Table]) -> dict[Any, float]:
        examples, correct, confidence, *_ = metrics[table_key].T
        gap = np.abs(correct - confidence).sum()
        return {metric_key: float(gap / max(examples.sum(), 1e-12))}

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

    return [
        table,
        metric_types.DerivedMetricComputation(keys=[metric_key], result=error),
        metric_types.DerivedMetricComputation(keys=[plot_key], result=plot),
    ]


class _TableCombiner(LabelledCombiner):
    """Sums up a :data:`Table`."""

    def create_accumulator(self) -> Table:
        return np.zeros([BINS, 5])

    def add_input(self, accumulator: Table, element: metric_types.StandardMetricInputs) -> Table:
        for actual, prediction, w in self.labelled(element):
            top = int(prediction.argmax())
            confidence, of_label = float(prediction[top]), float(prediction[actual])
            above = int((prediction > of_label).sum())
            loss = -math.log(min(max(of_label, EPSILON), 1 - EPSILON))
            index = min(int(confidence * BINS), BINS - 1)
            accumulator[index] += (
                w,
                w * (top == actual),
                w * confidence,
                w * (above < TOP),
                w * loss,
            )
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Table]) -> Table:
        return np.sum(list(accumulators), axis=0)
