"""The sums of a classifier, whichever way the examples are spread, and held against TFMA's."""

import pickle

import numpy as np
import pytest
from metric_values import metric_values
from tensorflow_model_analysis.metrics import multi_class_confusion_matrix_plot as stock
from tensorflow_model_analysis.proto import config_pb2

from stagecraft.components.evaluator import classification_metrics
from stagecraft.components.evaluator.classification_metrics import (
    KEPT,
    BetterThanConstant,
    MostConfidentlyWrong,
    Sums,
)

METRICS = (
    classification_metrics.Accuracy,
    classification_metrics.TopAccuracy,
    classification_metrics.CrossEntropy,
    classification_metrics.ExpectedCalibrationError,
    classification_metrics.ConfusionMatrix,
    BetterThanConstant,
    MostConfidentlyWrong,
)


def noise(count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    probabilities = rng.dirichlet(np.full(classes, 0.3), size=count).astype(np.float32)
    return rng.integers(classes, size=count), probabilities


@pytest.mark.parametrize(("count", "classes"), [(0, 3), (1, 3), (700, 10), (50, 3000)])
@pytest.mark.parametrize("parts", [1, 4])
def test_the_confusion_matrix_is_that_of_tfma(count, classes, parts):
    labels, probabilities = noise(count, classes)
    name = classification_metrics.CONFUSION_MATRIX
    found, expected = (
        metric_values(metric, labels, probabilities, parts, weight=0.5)[name]
        for metric in (
            classification_metrics.ConfusionMatrix(),
            stock.MultiClassConfusionMatrixPlot(),
        )
    )
    (matrix,) = found.matrices
    assert matrix.threshold == 0
    if count:
        assert found == expected
    else:
        assert not matrix.entries


def test_all_metrics_of_a_classifier_have_the_same_sums():
    config = config_pb2.EvalConfig(model_specs=[config_pb2.ModelSpec()])
    sums = {metric().computations(eval_config=config)[0] for metric in METRICS}
    assert len(sums) == 1


def test_sums_do_not_depend_on_when_they_are_added_up_or_pickled():
    labels, probabilities = noise(200, 5)
    whole, halves = Sums(), (Sums(), Sums())
    for i in range(200):
        example = (int(labels[i]), probabilities[i], 1.0 + i % 3, i)
        whole.collect(*example)
        halves[i % 2].collect(*example)
        if i % 7 == 0:
            halves[0].add_up()
    merged = Sums()
    for half in halves:
        merged.merge(pickle.loads(pickle.dumps(half)))
    whole.add_up()
    # Sums of 200 terms of at most 3 * 16, in another order.
    np.testing.assert_allclose(merged.table, whole.table, rtol=0, atol=200 * 48 * 2**-52)
    assert merged.cells.keys() == whole.cells.keys()
    for cell, values in whole.cells.items():
        np.testing.assert_array_equal(merged.cells[cell], values)
    assert sum(values[1] for values in whole.cells.values()) == 200
    assert len(whole.mistakes) == KEPT
    assert sorted(merged.mistakes) == sorted(whole.mistakes)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_probabilities_that_are_no_numbers_are_refused(bad):
    labels, probabilities = noise(3, 4)
    probabilities[1, 2] = bad
    with pytest.raises(ValueError, match="not finite"):
        metric_values(classification_metrics.Accuracy(), labels, probabilities)
