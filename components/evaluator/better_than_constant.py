"""The Evaluator's metric of whether a classifier is better than a constant."""

from __future__ import annotations

import collections

from tensorflow_model_analysis.metrics import metric_types

from stagecraft.components.evaluator.evaluation import BETTER_THAN_CONSTANT, confidence
from stagecraft.components.evaluator.example_metric import per_key
from stagecraft.components.evaluator.top_labels import Sums, computations


class BetterThanConstant(metric_types.Metric):
    """Confidence, 0 to 1, that the model is more accurate than a constant prediction.

    See :mod:`stagecraft.components.evaluator.evaluation`. Each example counts once, whatever its
    weight.
    """

    def __init__(self, name: str = BETTER_THAN_CONSTANT):
        super().__init__(
            per_key(lambda key, config: computations(key, config, (key, _confidence))), name=name
        )


metric_types.register_metric(BetterThanConstant)


def _confidence(sums: Sums) -> float:
    num_correct, labels = 0, collections.Counter[int]()
    for (actual, predicted), (_, examples) in sums.cells.items():
        num_correct += int(examples) * (actual == predicted)
        labels[actual] += int(examples)
    return confidence(num_correct, max(labels.values(), default=0), sum(labels.values()))
