"""The base of TFMA metrics that look at each example once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
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


class Combiner(beam.CombineFn):
    """Base of combiners whose accumulator becomes the value of one key."""

    def __init__(self, key: MetricKey, eval_config: Any):
        self._key = key
        self._eval_config = eval_config

    def extract_output(self, accumulator: Any) -> dict[MetricKey, Any]:
        """The value, under its key."""
        return {self._key: accumulator}


def combined(
    key: MetricKey, eval_config: Any, combiner: type[Combiner]
) -> metric_types.MetricComputation:
    """The computation of the value that a combiner extracts."""
    return metric_types.MetricComputation(
        [key], preprocessors=None, combiner=combiner(key, eval_config)
    )
