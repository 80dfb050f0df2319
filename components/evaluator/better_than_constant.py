"""The Evaluator's metric of whether a classifier is better than a constant."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import NamedTuple

from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.metrics.metric_types import MetricKey

from stagecraft.components.evaluator.evaluation import BETTER_THAN_CONSTANT, confidence
from stagecraft.components.evaluator.example_metric import ExampleCombiner, combined


class BetterThanConstant(metric_types.Metric):
    """Confidence, 0 to 1, that the model is more accurate than a constant prediction.

    See :mod:`stagecraft.components.evaluator.evaluation`. Each example counts once, whatever its
    weight.
    """

    def __init__(self, name: str = BETTER_THAN_CONSTANT):
        super().__init__(combined(_CountCombiner), name=name)


metric_types.register_metric(BetterThanConstant)


class _Counts(NamedTuple):
    num_correct: int
    labels: collections.Counter[int]


class _CountCombiner(ExampleCombiner):
    def create_accumulator(self) -> _Counts:
        return _Counts(0, collections.Counter())

    def add_input(
        self, accumulator: _Counts, element: metric_types.StandardMetricInputs
    ) -> _Counts:
        num_correct, labels = accumulator
        for label, probabilities, _ in self.examples(element):
            num_correct += int(probabilities.argmax()) == label
            labels[label] += 1
        return _Counts(num_correct, labels)

    def merge_accumulators(self, accumulators: Iterable[_Counts]) -> _Counts:
        merged = self.create_accumulator()
        for num_correct, labels in accumulators:
            merged = _Counts(merged.num_correct + num_correct, merged.labels + labels)
        return merged

    def extract_output(self, accumulator: _Counts) -> dict[MetricKey, float]:
        num_correct, labels = accumulator
        value = confidence(num_correct, max(labels.values(), default=0), sum(labels.values()))
        return {self._key: value}
