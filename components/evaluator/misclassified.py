"""The Evaluator's metric that keeps the misclassified examples with the highest confidence.

A report finds their images by id and does not need the model.
"""

from __future__ import annotations

import json

from tensorflow_model_analysis.metrics import metric_types

from stagecraft.components.evaluator.evaluation import MISTAKES
from stagecraft.components.evaluator.example_metric import per_key
from stagecraft.components.evaluator.top_labels import Sums, computations


class MostConfidentlyWrong(metric_types.Metric):
    """The mistakes with the highest confidence, as text: see ``read_mistakes``.

    Examples without the feature ``id`` are left out.
    """

    def __init__(self, name: str = MISTAKES):
        super().__init__(
            per_key(lambda key, config: computations(key, config, (key, _text))), name=name
        )


metric_types.register_metric(MostConfidentlyWrong)


def _text(sums: Sums) -> str:
    return json.dumps(sorted(sums.mistakes, reverse=True))
