"""What the Evaluator's own metrics have in common: each looks at an example and its label once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util


class LabelledCombiner(beam.CombineFn):
    """Base of those that combine a classifier's answers into the value of one key."""

    def __init__(self, key: metric_types.MetricKey, eval_config: Any):
        """Keeps what TFMA asks for.

        Args:
            key: of the value.
            eval_config: as TFMA gives it to a metric's computations.
        """
        self._key = key
        self._eval_config = eval_config

    def labelled(
        self, element: metric_types.StandardMetricInputs
    ) -> Iterator[tuple[int, np.ndarray, float]]:
        """Label, probabilities ``[classes]`` and weight of each example in an element."""
        for label, probabilities, weight in metric_util.to_label_prediction_example_weight(
            element,
            eval_config=self._eval_config,
            model_name=self._key.model_name,
            output_name=self._key.output_name,
            example_weighted=self._key.example_weighted,
            flatten=False,
        ):
            yield int(label[0]), probabilities, float(weight[0])

    def extract_output(self, accumulator: Any) -> dict[metric_types.MetricKey, Any]:
        """The value, under its key."""
        return {self._key: accumulator}
