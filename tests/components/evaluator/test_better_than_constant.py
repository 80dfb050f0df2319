"""The test of a model against a constant, held against its definition; and the metric."""

import math

import numpy as np
import pytest
from metric_values import metric_values

from stagecraft.components.evaluator.classification_metrics import BetterThanConstant
from stagecraft.components.evaluator.evaluation import ENOUGH, confidence


def below(right: int, most_frequent: int, examples: int) -> float:
    """P(X < right), term by term."""
    p = most_frequent / examples
    return math.fsum(
        math.comb(examples, k) * p**k * (1 - p) ** (examples - k) for k in range(right)
    )


@pytest.mark.parametrize("examples", [1, 2, 10, 60])
def test_agrees_with_the_definition(examples):
    for most_frequent in range(1, examples + 1):
        for right in range(examples + 1):
            expected = below(right, most_frequent, examples)
            # Both are sums of up to 60 terms below 1, each rounded some times.
            found = confidence(right, most_frequent, examples)
            assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("right", "most_frequent", "examples", "better"),
    [
        (10, 12, 100, False),  # chance level, of ten classes
        (12, 12, 100, False),  # the constant itself
        (18, 12, 100, False),
        (19, 12, 100, True),
        (5, 2, 10, True),
        (4, 2, 10, False),
        (95, 90, 100, False),  # most are of one class
        (97, 90, 100, True),
        (100, 100, 100, False),  # all are: nothing is better than the constant
        (0, 0, 0, False),
        (1, 1, 1, False),
        (10_200, 10_000, 100_000, True),
        (3_001_000, 3_000_000, 30_000_000, False),
    ],
)
def test_what_is_better(right, most_frequent, examples, better):
    assert (confidence(right, most_frequent, examples) >= ENOUGH) is better


def test_models_that_have_learned_nothing_are_blessed_once_in_twenty_at_most():
    """Right with the probability of the most frequent label, whatever that is."""
    random = np.random.default_rng(0)
    for examples, share in ((10, 0.2), (100, 0.1), (1000, 0.5)):
        right = random.binomial(examples, share, 20_000)
        blessed = np.array(
            [
                confidence(k, round(share * examples), examples) >= ENOUGH
                for k in range(examples + 1)
            ]
        )
        # Four standard errors of a share of 0.05 of 20,000.
        assert blessed[right].mean() <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 20_000)


def measure(labels: np.ndarray, probabilities: np.ndarray, parts: int) -> float:
    values = metric_values(BetterThanConstant(), labels, probabilities, parts, weight=0.25)
    return float(values["better_than_constant"])


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_the_metric_agrees(parts):
    random = np.random.default_rng(0)
    labels = random.integers(10, size=200)
    probabilities = random.dirichlet(np.full(10, 0.3), size=200)
    probabilities[np.arange(200), labels] += 0.2
    right = int((probabilities.argmax(axis=1) == labels).sum())
    expected = confidence(right, int(np.bincount(labels).max()), 200)
    assert measure(labels, probabilities, parts) == expected


def test_no_example_is_no_better():
    assert measure(np.array([], np.int64), np.zeros([0, 10]), 1) == 0.0
