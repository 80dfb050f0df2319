"""Which mistakes are kept, however the examples are spread over workers."""

import numpy as np
import pytest
from metric_values import metric_values

from stagecraft.components.evaluator.classification_metrics import KEPT, MostConfidentlyWrong
from stagecraft.components.evaluator.evaluation import MISTAKES, Mistake, read_mistakes


def measure(
    labels: np.ndarray, probabilities: np.ndarray, parts: int, *, ids: bool = True
) -> list[Mistake]:
    example_ids = 1000 + np.arange(len(labels)) if ids else None
    values = metric_values(MostConfidentlyWrong(), labels, probabilities, parts, ids=example_ids)
    return read_mistakes(values[MISTAKES])


@pytest.mark.parametrize("parts", [1, 3])
def test_the_most_confident_are_kept(parts):
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(10, 0.3), size=500)
    labels = rng.integers(10, size=500)
    found = measure(labels, probabilities, parts)

    wrong = np.flatnonzero(probabilities.argmax(axis=1) != labels)
    expected = wrong[np.argsort(-probabilities[wrong].max(axis=1))][:KEPT]
    assert [mistake.id for mistake in found] == [1000 + row for row in expected]
    first = found[0]
    assert first.actual == labels[expected[0]]
    assert first.predicted == probabilities[expected[0]].argmax()
    assert first.confidence == probabilities[expected[0]].max()
    assert first.probability == probabilities[expected[0], labels[expected[0]]]


def test_no_mistake_and_no_id():
    assert measure(np.array([0, 1, 2]), np.eye(3), 2) == []
    assert measure(np.array([1, 2, 0]), np.eye(3), 1, ids=False) == []
