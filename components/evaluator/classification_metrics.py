"""Metrics of a classifier, all computed from the same sums.

TFMA has such metrics through Keras. Each of these reads all examples of each slice again, in eager
TensorFlow, and its CalibrationPlot flattens classes into one binary problem over every (example,
class) pair. Here each example is read once. TFMA calls a combiner with one example of one slice at
a time; most of the time would go into NumPy calls on ten numbers. So an accumulator collects some
examples, and adds them up together.

Top-label calibration uses equal-width bins, as in Guo et al. 2017, "On Calibration of Modern Neural
Networks", section 2. The misclassified examples with the highest confidence are kept, too: a report
finds their images by id and does not need the model.
"""

from __future__ import annotations

import collections
import heapq
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.metrics.metric_types import MetricKey, PlotKey
from tensorflow_model_analysis.proto import metrics_for_slice_pb2

from stagecraft.components.evaluator import evaluation
from stagecraft.components.evaluator.evaluation import (
    ACCURACY,
    BETTER_THAN_CONSTANT,
    CALIBRATION_ERROR,
    LOSS,
    MISTAKES,
    TOP_LABEL_CALIBRATION,
    Mistake,
)
from stagecraft.components.evaluator.example_metric import Combiner, per_key
from stagecraft.schemas import features

BINS = 15  # of confidence, equally wide
TOP = 3  # of top-k accuracy
EPSILON = 1e-7  # lower bound of a probability in a loss, as in Keras (``keras.config.epsilon``)
KEPT = 24  # mistakes

_COLLECTED = 4096
"""Probabilities that an accumulator collects: 400 examples of 10 classes, 4 of 1,000. There is an
accumulator for each slice, so their memory is bounded."""


CONFUSION_MATRIX = "multi_class_confusion_matrix_plot"
"""TFMA's name of this plot."""


class Sums:
    """Sums over the examples of a slice."""

    def __init__(self) -> None:
        self.table = np.zeros([BINS, 5])
        """float64 ``[bins, 5]``, weighted sums over the examples of a bin: examples, correct
        predictions, confidence, labels among the top k, losses in nats."""

        self.cells: dict[tuple[int, int], np.ndarray] = {}
        """(label, predicted class) -> float64 ``[2]``: sum of the weights, number of examples."""

        self.mistakes: list[Mistake] = []
        """A heap of those with the highest confidence, at most ``KEPT``."""

        self._collected: list[tuple[int, np.ndarray, float, int | None]] = []

    def collect(
        self, label: int, probabilities: np.ndarray, weight: float, example_id: int | None
    ) -> None:
        """Takes an example; ``probabilities``: ``[classes]``."""
        self._collected.append((label, probabilities, weight, example_id))
        if len(self._collected) * probabilities.size >= _COLLECTED:
            self.add_up()

    def add_up(self) -> None:
        """Adds the collected examples to the sums.

        Raises:
            ValueError: a probability is not a finite number.
        """
        if not self._collected:
            return
        labels, rows, weights, ids = (list(column) for column in zip(*self._collected, strict=True))
        self._collected = []
        probabilities, label, weight = np.stack(rows), np.array(labels), np.array(weights)
        if not np.isfinite(probabilities).all():
            raise ValueError(f"The model's probabilities are not finite numbers: {probabilities}")
        number = np.arange(label.size)
        top = probabilities.argmax(axis=1)
        confidence = probabilities[number, top].astype(np.float64)
        of_label = probabilities[number, label].astype(np.float64)
        above = (probabilities > of_label[:, np.newaxis]).sum(axis=1)
        loss = -np.log(np.clip(of_label, EPSILON, 1 - EPSILON))
        row = np.stack([np.ones_like(loss), top == label, confidence, above < TOP, loss], axis=1)
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        np.add.at(self.table, bins, weight[:, np.newaxis] * row)
        self._add_cells(label, top, weight)
        for i in np.flatnonzero(top != label).tolist():
            if ids[i] is not None:
                sure, right = float(confidence[i]), float(of_label[i])
                self._keep(Mistake(sure, ids[i], labels[i], int(top[i]), right))

    def merge(self, other: Sums) -> None:
        """Adds the sums of other examples."""
        self.add_up()
        other.add_up()
        self.table = self.table + other.table
        for cell, values in other.cells.items():
            self._add_cell(cell, values)
        for mistake in other.mistakes:
            self._keep(mistake)

    def _add_cells(self, label: np.ndarray, top: np.ndarray, weight: np.ndarray) -> None:
        pairs = np.stack([label, top], axis=1)
        cells, of_row = np.unique(pairs, axis=0, return_inverse=True)
        of_row = of_row.ravel()  # NumPy 2.0 gives it another shape
        weights, examples = np.bincount(of_row, weight), np.bincount(of_row)
        for (actual, predicted), *values in zip(cells.tolist(), weights, examples, strict=True):
            self._add_cell((actual, predicted), np.array(values, np.float64))

    def _add_cell(self, cell: tuple[int, int], values: np.ndarray) -> None:
        self.cells[cell] = self.cells.get(cell, 0.0) + values

    def _keep(self, mistake: Mistake) -> None:
        if len(self.mistakes) < KEPT:
            heapq.heappush(self.mistakes, mistake)
        else:
            heapq.heappushpop(self.mistakes, mistake)


def computations(
    key: MetricKey, eval_config: Any, *results: tuple[MetricKey, Callable[[Sums], Any]]
) -> metric_types.MetricComputations:
    """The computations of metrics and plots: each key with the function of its value.

    The computation of the sums is equal for all metrics of a model, so that TFMA runs it once.
    """
    of_sums = key._replace(name="_top_labels")
    sums = metric_types.MetricComputation(
        [of_sums],
        preprocessors=[metric_types.FeaturePreprocessor([features.ID])],
        combiner=_Combiner(of_sums, eval_config),
    )

    def derived(key: MetricKey, value: Callable[[Sums], Any]) -> Any:
        return metric_types.DerivedMetricComputation(
            keys=[key], result=lambda metrics: {key: value(metrics[of_sums])}
        )

    return [sums, *(derived(*result) for result in results)]


class _Combiner(Combiner):
    """Adds up a classifier's predictions."""

    def create_accumulator(self) -> Sums:
        return Sums()

    def add_input(self, accumulator: Sums, element: metric_types.StandardMetricInputs) -> Sums:
        ids = (element.features or {}).get(features.ID)
        example_id = None if ids is None else int(ids[0])
        for label, probabilities, weight in metric_util.to_label_prediction_example_weight(
            element,
            eval_config=self._eval_config,
            model_name=self._key.model_name,
            output_name=self._key.output_name,
            example_weighted=self._key.example_weighted,
            flatten=False,
        ):
            accumulator.collect(int(label[0]), probabilities, float(weight[0]), example_id)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Sums]) -> Sums:
        merged = self.create_accumulator()
        for sums in accumulators:
            merged.merge(sums)
        return merged

    def compact(self, accumulator: Sums) -> Sums:
        accumulator.add_up()
        return accumulator

    def extract_output(self, accumulator: Sums) -> dict[MetricKey, Sums]:
        accumulator.add_up()
        return super().extract_output(accumulator)


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

    def __init__(self, name: str = CALIBRATION_ERROR):
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


class MostConfidentlyWrong(metric_types.Metric):
    """The mistakes with the highest confidence, as text: see ``read_mistakes``.

    Examples without the feature ``id`` are left out.
    """

    def __init__(self, name: str = MISTAKES):
        super().__init__(
            per_key(lambda key, config: computations(key, config, (key, _mistakes_text))), name=name
        )


def _mistakes_text(sums: Sums) -> str:
    return json.dumps(sorted(sums.mistakes, reverse=True))


class BetterThanConstant(metric_types.Metric):
    """Confidence, 0 to 1, that the model is more accurate than a constant prediction.

    See :mod:`stagecraft.components.evaluator.evaluation`. Each example counts once, whatever its
    weight.
    """

    def __init__(self, name: str = BETTER_THAN_CONSTANT):
        super().__init__(
            per_key(lambda key, config: computations(key, config, (key, _better_than_constant))),
            name=name,
        )


def _better_than_constant(sums: Sums) -> float:
    num_correct, labels = 0, collections.Counter[int]()
    for (actual, predicted), (_, examples) in sums.cells.items():
        num_correct += int(examples) * (actual == predicted)
        labels[actual] += int(examples)
    return evaluation.confidence(num_correct, max(labels.values(), default=0), sum(labels.values()))


for _metric in (
    Accuracy,
    TopAccuracy,
    CrossEntropy,
    ExpectedCalibrationError,
    ConfusionMatrix,
    MostConfidentlyWrong,
    BetterThanConstant,
):
    metric_types.register_metric(_metric)
