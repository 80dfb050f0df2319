"""The metric counts the same, however the examples are spread over workers."""

from __future__ import annotations

import numpy as np
import pytest
from metric_values import metric_values

from stagecraft.components.evaluator.better_than_constant import BetterThanConstant
from stagecraft.components.evaluator.binomial import confidence


def measure(labels: np.ndarray, probabilities: np.ndarray, parts: int) -> float:
    values = metric_values(BetterThanConstant(), labels, probabilities, parts, weight=0.25)
    return float(values["better_than_constant"])


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
