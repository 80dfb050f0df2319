"""Which examples a classifier is surest of and wrong about, found while it is evaluated.

Whoever shows them has their ids, and no need to ask the model again.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from tensorflow_model_analysis.metrics import metric_types, metric_util

from stagecraft.components.evaluator.labelled import LabelledCombiner
from stagecraft.schemas import features

NAME = "most_confidently_wrong"

KEPT = 24


class Mistake(NamedTuple):
    """An example that was given another label than its own."""

    confidence: float
    """Probability of ``predicted``; first, so that mistakes are in its order."""
    id: int
    actual: int
    predicted: int
    probability: float
    """Of ``actual``."""


class MostConfidentlyWrong(metric_types.Metric):
    """The mistakes with the highest confidence, as text: see :func:`read`.

    Examples without the feature ``id`` are left out.
    """

    def __init__(self, name: str = NAME):
        super().__init__(metric_util.merge_per_key_computations(_computations), name=name)


metric_types.register_metric(MostConfidentlyWrong)


def read(text: str) -> list[Mistake]:
    """The value of the metric, surest first."""
    return [Mistake(*row) for row in json.loads(text)]


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
    return [
        metric_types.MetricComputation(
            [key],
            preprocessors=[metric_types.FeaturePreprocessor([features.ID])],
            combiner=_Combiner(key, eval_config),
        )
    ]


class _Combiner(LabelledCombiner):
    """Keeps the surest mistakes, as a heap."""

    def create_accumulator(self) -> list[Mistake]:
        return []

    def add_input(
        self, accumulator: list[Mistake], element: metric_types.StandardMetricInputs
    ) -> list[Mistake]:
        ids = (element.features or {}).get(features.ID)
        if ids is None:
            return accumulator
        for actual, prediction, _ in self.labelled(element):
            predicted = int(prediction.argmax())
            if actual != predicted:
                confidence, probability = (float(prediction[c]) for c in (predicted, actual))
                mistake = Mistake(confidence, int(ids[0]), actual, predicted, probability)
                if len(accumulator) < KEPT:
                    heapq.heappush(accumulator, mistake)
                else:
                    heapq.heappushpop(accumulator, mistake)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[Mistake]]) -> list[Mistake]:
        return heapq.nlargest(KEPT, (mistake for one in accumulators for mistake in one))[::-1]

    def extract_output(self, accumulator: list[Mistake]) -> dict[Any, str]:
        return super().extract_output(json.dumps(sorted(accumulator, reverse=True)))
