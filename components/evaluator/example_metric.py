"""The base of TFMA metrics that look at each example and its label once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.metrics.metric_types import MetricKey


def per_key(
    compute: Callable[[MetricKey, Any], metric_types.MetricComputations],
) -> Callable[..., metric_types.MetricComputations]:
    """The function that ``metric_types.Metric`` calls for its computations."""

    # TFMA reads the names of these arguments to know which to pass.
    def computations(
        name: str,
        eval_config: Any = None,
        model_name: str = "",
        output_name: str = "",
        example_weighted: bool = False,
    ) -> metric_types.MetricComputations:
        key = MetricKey(
            name=name,
            model_name=model_name,
            output_name=output_name,
            example_weighted=example_weighted,
        )
        return compute(key, eval_config)

    return metric_util.merge_per_key_computations(computations)


def combined(
    combiner: type[ExampleCombiner], preprocessors: list[Any] | None = None
) -> Callable[..., metric_types.MetricComputations]:
    """The computations of a metric whose value is what a combiner extracts."""
    return per_key(
        lambda key, config: [
            metric_types.MetricComputation(
                [key], preprocessors=preprocessors, combiner=combiner(key, config)
            )
        ]
    )


class ExampleCombiner(beam.CombineFn):
    """Base of combiners that turn a classifier's predictions into the value of one key."""

    def __init__(self, key: MetricKey, eval_config: Any):
        self._key = key
        self._eval_config = eval_config

    def examples(
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

    def extract_output(self, accumulator: Any) -> dict[MetricKey, Any]:
        """The value, under its key."""
        return {self._key: accumulator}
