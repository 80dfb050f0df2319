"""The metric counts the same, however the examples are spread over workers."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2

from stagecraft.components.evaluator.better_than_constant import BetterThanConstant
from stagecraft.components.evaluator.binomial import confidence


def measure(labels: np.ndarray, probabilities: np.ndarray, parts: int) -> float:
    """Drives the metric's computation as TFMA does: add, merge, extract."""
    config = config_pb2.EvalConfig(model_specs=[config_pb2.ModelSpec()])
    [computation] = BetterThanConstant().computations(eval_config=config)
    accumulators = [computation.combiner.create_accumulator()]
    for rows in np.array_split(np.arange(len(labels)), parts):
        accumulator = computation.combiner.create_accumulator()
        for row in rows:
            element = metric_types.StandardMetricInputs(
                labels=labels[row : row + 1],
                predictions=probabilities[row],
                example_weights=np.array([0.25]),
            )
            accumulator = computation.combiner.add_input(accumulator, element)
        accumulators.append(accumulator)
    merged = computation.combiner.merge_accumulators(accumulators)
    [(key, value)] = computation.combiner.extract_output(merged).items()
    assert key.name == "better_than_constant"
    return float(value)


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_agrees_with_the_definition(parts: int) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(10, size=200)
    probabilities = random.dirichlet(np.full(10, 0.3), size=200)
    probabilities[np.arange(200), labels] += 0.2
    right = int((probabilities.argmax(axis=1) == labels).sum())
    expected = confidence(right, int(np.bincount(labels).max()), 200)
    assert measure(labels, probabilities, parts) == expected


def test_no_example_is_no_better() -> None:
    assert measure(np.array([], np.int64), np.zeros([0, 10]), 1) == 0.0
