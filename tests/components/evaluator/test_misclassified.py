"""Which mistakes are kept, however the examples are spread over workers."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2

from stagecraft.components.evaluator import misclassified
from stagecraft.components.evaluator.misclassified import KEPT, Mistake, MostConfidentlyWrong
from stagecraft.schemas import features


def measure(
    labels: np.ndarray, probabilities: np.ndarray, parts: int, *, ids: bool = True
) -> list[Mistake]:
    """Drives the metric's computation as TFMA does: add, merge, extract."""
    config = config_pb2.EvalConfig(model_specs=[config_pb2.ModelSpec()])
    [computation] = MostConfidentlyWrong().computations(eval_config=config)
    accumulators = []
    for rows in np.array_split(np.arange(len(labels)), parts):
        accumulator = computation.combiner.create_accumulator()
        for row in rows:
            element = metric_types.StandardMetricInputs(
                labels=labels[row : row + 1],
                predictions=probabilities[row],
                example_weights=np.ones(1),
                features={features.ID: np.array([1000 + row])} if ids else {},
            )
            accumulator = computation.combiner.add_input(accumulator, element)
        accumulators.append(accumulator)
    merged = computation.combiner.merge_accumulators(accumulators)
    [text] = computation.combiner.extract_output(merged).values()
    return misclassified.read(text)


@pytest.mark.parametrize("parts", [1, 3])
def test_the_surest_ones_are_kept(parts: int) -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(10, 0.3), size=500)
    labels = rng.integers(10, size=500)
    found = measure(labels, probabilities, parts)

    wrong = np.flatnonzero(probabilities.argmax(axis=1) != labels)
    surest = wrong[np.argsort(-probabilities[wrong].max(axis=1))][:KEPT]
    assert [mistake.id for mistake in found] == [1000 + row for row in surest]
    first = found[0]
    assert first.actual == labels[surest[0]]
    assert first.predicted == probabilities[surest[0]].argmax()
    assert first.confidence == probabilities[surest[0]].max()
    assert first.probability == probabilities[surest[0], labels[surest[0]]]


def test_no_mistake_and_no_id() -> None:
    assert measure(np.array([0, 1, 2]), np.eye(3), 2) == []
    assert measure(np.array([1, 2, 0]), np.eye(3), 1, ids=False) == []
