"""The Evaluator's metric that keeps the misclassified examples with the highest confidence.

A report finds their images by id and does not need the model.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from typing import Any

from tensorflow_model_analysis.metrics import metric_types

from stagecraft.components.evaluator.evaluation import Mistake
from stagecraft.components.evaluator.example_metric import ExampleCombiner, combined
from stagecraft.schemas import features

NAME = "most_confidently_wrong"

KEPT = 24


class MostConfidentlyWrong(metric_types.Metric):
    """The mistakes with the highest confidence, as text: see :func:`read`.

    Examples without the feature ``id`` are left out.
    """

    def __init__(self, name: str = NAME):
        preprocessors = [metric_types.FeaturePreprocessor([features.ID])]
        super().__init__(combined(_MistakeCombiner, preprocessors), name=name)


metric_types.register_metric(MostConfidentlyWrong)


def read(text: str) -> list[Mistake]:
    """The value of the metric, most confident first."""
    return [Mistake(*row) for row in json.loads(text)]


class _MistakeCombiner(ExampleCombiner):
    def create_accumulator(self) -> list[Mistake]:
        return []

    def add_input(
        self, accumulator: list[Mistake], element: metric_types.StandardMetricInputs
    ) -> list[Mistake]:
        ids = (element.features or {}).get(features.ID)
        if ids is None:
            return accumulator
        for actual, prediction, _ in self.examples(element):
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
