"""Calibration of a classifier: is it right as often as it says it is?

Top-label calibration in equal-width bins, as in Guo et al. 2017, "On Calibration
of Modern Neural Networks", section 2. TFMA's own CalibrationPlot flattens classes
into one binary problem and takes every (example, class) pair, which costs as many
times more as there are classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import metrics_for_slice_pb2

NAME = "expected_calibration_error"
PLOT_NAME = "top_label_calibration"


class ExpectedCalibrationError(metric_types.Metric):
    """Mean of ``|accuracy - confidence|`` over bins of confidence, weighted by examples.

    Also yields the plot ``top_label_calibration`` (``CalibrationHistogramBuckets``): per bin,
    the summed correctness as label, the summed confidence as prediction, and the examples.
    """

    def __init__(self, bins: int = 15, name: str = NAME):
        """
        Args:
            bins: equal-width bins of confidence in ``[0, 1]``.
            name: of the metric.
        """
        super().__init__(
            metric_util.merge_per_key_computations(_computations), bins=bins, name=name
        )


metric_types.register_metric(ExpectedCalibrationError)


def _computations(
    bins: int,
    name: str,
    eval_config: Any = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    where = {
        "model_name": model_name,
        "output_name": output_name,
        "example_weighted": example_weighted,
    }
    table_key = metric_types.MetricKey(name=f"_{name}_{bins}", **where)
    metric_key = metric_types.MetricKey(name=name, **where)
    plot_key = metric_types.PlotKey(name=PLOT_NAME, **where)

    def error(metrics: dict[Any, np.ndarray]) -> dict[Any, float]:
        examples, correct, confidence = metrics[table_key].T
        gap = np.abs(correct - confidence).sum()
        return {metric_key: float(gap / max(examples.sum(), 1e-12))}

    def plot(metrics: dict[Any, np.ndarray]) -> dict[Any, Any]:
        buckets = metrics_for_slice_pb2.CalibrationHistogramBuckets()
        for i, (examples, correct, confidence) in enumerate(metrics[table_key]):
            buckets.buckets.add(
                lower_threshold_inclusive=i / bins,
                upper_threshold_exclusive=(i + 1) / bins,
                total_weighted_label={"value": correct},
                total_weighted_refined_prediction={"value": confidence},
                num_weighted_examples={"value": examples},
            )
        return {plot_key: buckets}

    return [
        metric_types.MetricComputation(
            keys=[table_key],
            preprocessors=None,
            combiner=_BinCombiner(table_key, bins, eval_config),
        ),
        metric_types.DerivedMetricComputation(keys=[metric_key], result=error),
        metric_types.DerivedMetricComputation(keys=[plot_key], result=plot),
    ]


class _BinCombiner(beam.CombineFn):
    """Sums ``[examples, correct, confidence]`` per bin: float64 ``[bins, 3]``."""

    def __init__(self, key: metric_types.MetricKey, bins: int, eval_config: Any):
        self._key = key
        self._bins = bins
        self._eval_config = eval_config

    def create_accumulator(self) -> np.ndarray:
        return np.zeros([self._bins, 3])

    def add_input(
        self, accumulator: np.ndarray, element: metric_types.StandardMetricInputs
    ) -> np.ndarray:
        for label, prediction, weight in metric_util.to_label_prediction_example_weight(
            element,
            eval_config=self._eval_config,
            model_name=self._key.model_name,
            output_name=self._key.output_name,
            example_weighted=self._key.example_weighted,
            flatten=False,
        ):
            top = int(np.argmax(prediction))
            confidence = float(prediction[top])
            index = min(int(confidence * self._bins), self._bins - 1)
            w = float(weight[0])
            accumulator[index] += (w, w * (top == int(label[0])), w * confidence)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[np.ndarray]) -> np.ndarray:
        return np.sum(list(accumulators), axis=0)

    def extract_output(self, accumulator: np.ndarray) -> dict[Any, np.ndarray]:
        return {self._key: accumulator}
