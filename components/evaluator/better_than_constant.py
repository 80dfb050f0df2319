"""The Evaluator's metric of whether a classifier is better than a constant."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any, NamedTuple

from tensorflow_model_analysis.metrics import metric_types, metric_util

from stagecraft.components.evaluator.binomial import BETTER_THAN_CONSTANT, confidence
from stagecraft.components.evaluator.labelled import LabelledCombiner


class BetterThanConstant(metric_types.Metric):
    """With what confidence the accuracy is above that of always the most frequent label, 0 to 1.

    See :mod:`stagecraft.components.evaluator.binomial`. Each example counts once, whatever its
    weight.
    """

    def __init__(self, name: str = BETTER_THAN_CONSTANT):
        super().__init__(metric_util.merge_per_key_computations(_computations), name=name)


metric_types.register_metric(BetterThanConstant)


class _Counts(NamedTuple):
    right: int
    labels: collections.Counter[int]


def _computations(
    name: str,
    eval_config: Any = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    key = metric_types.MetricKey(
        name=name,
        model_name=model_name,
        output_name=output_name,
        example_weighted=example_weighted,
    )
    combiner = _Combiner(key, eval_config)
    return [metric_types.MetricComputation([key], preprocessors=None, combiner=combiner)]


class _Combiner(LabelledCombiner):
    """Counts right answers and labels."""

    def create_accumulator(self) -> _Counts:
        return _Counts(0, collections.Counter())

    def add_input(
        self, accumulator: _Counts, element: metric_types.StandardMetricInputs
    ) -> _Counts:
        right, labels = accumulator
        for actual, probabilities, _ in self.labelled(element):
            right += int(probabilities.argmax()) == actual
            labels[actual] += 1
        return _Counts(right, labels)

    def merge_accumulators(self, accumulators: Iterable[_Counts]) -> _Counts:
        merged = self.create_accumulator()
        for right, labels in accumulators:
            merged = _Counts(merged.right + right, merged.labels + labels)
        return merged

    def extract_output(self, accumulator: _Counts) -> dict[metric_types.MetricKey, float]:
        right, labels = accumulator
        value = confidence(right, max(labels.values(), default=0), sum(labels.values()))
        return {self._key: value}
