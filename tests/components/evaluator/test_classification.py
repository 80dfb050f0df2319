"""Metrics of a classifier against their definitions, in NumPy and Keras."""

from typing import Any

import numpy as np
import pytest
from metric_values import metric_values
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2

from stagecraft.components.evaluator import classification_metrics
from stagecraft.components.evaluator.classification_metrics import (
    BINS,
    ExpectedCalibrationError,
)
from stagecraft.components.evaluator.evaluation import CALIBRATION_ERROR, TOP_LABEL_CALIBRATION


def measure(
    labels: np.ndarray,
    probabilities: np.ndarray,
    metric: type[metric_types.Metric] = ExpectedCalibrationError,
) -> dict[str, Any]:
    return metric_values(metric(), labels, probabilities)


def test_agrees_with_the_definition():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(10, 0.3), size=500)
    labels = rng.integers(10, size=500)

    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    expected = sum(
        abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean()
        for b in np.unique(bins)
    )
    measured = measure(labels, probabilities)
    assert measured[CALIBRATION_ERROR] == pytest.approx(expected, abs=1e-12)
    buckets = measured[TOP_LABEL_CALIBRATION].buckets
    assert [b.num_weighted_examples.value for b in buckets] == np.bincount(
        bins, minlength=BINS
    ).tolist()


@pytest.mark.parametrize(("labels", "error"), [([0, 1, 2], 0.0), ([1, 2, 0], 1.0)])
def test_full_confidence_is_perfect_or_wrong(labels, error):
    assert measure(np.array(labels), np.eye(3))[CALIBRATION_ERROR] == pytest.approx(error)


def test_agrees_with_keras():
    import keras

    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.full(10, 0.2), size=300).astype(np.float32)
    probabilities[:5] = np.eye(10)[:5]  # certain: right, and wrong
    labels = rng.integers(10, size=300)
    for metric, expected in (
        (classification_metrics.Accuracy, keras.metrics.SparseCategoricalAccuracy("accuracy")),
        (
            classification_metrics.TopAccuracy,
            keras.metrics.SparseTopKCategoricalAccuracy(3, "top_3_accuracy"),
        ),
        (classification_metrics.CrossEntropy, keras.metrics.SparseCategoricalCrossentropy("loss")),
    ):
        expected.update_state(labels, probabilities)
        found = measure(labels, probabilities, metric)[expected.name]
        assert found == pytest.approx(float(expected.result()), rel=1e-5)


def test_the_table_is_counted_once():
    config = config_pb2.EvalConfig(model_specs=[config_pb2.ModelSpec()])
    tables = {
        metric().computations(eval_config=config)[0]
        for metric in (
            classification_metrics.Accuracy,
            classification_metrics.TopAccuracy,
            classification_metrics.CrossEntropy,
            ExpectedCalibrationError,
        )
    }
    assert len(tables) == 1


def test_each_model_is_measured_by_itself():
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=40)
    probabilities = {name: rng.dirichlet(np.ones(3), size=40) for name in ("candidate", "baseline")}
    config = config_pb2.EvalConfig(
        model_specs=[
            config_pb2.ModelSpec(name="candidate"),
            config_pb2.ModelSpec(name="baseline", is_baseline=True),
        ]
    )
    computations = classification_metrics.Accuracy().computations(
        eval_config=config, model_names=["candidate", "baseline"]
    )
    tables = [each for each in computations if hasattr(each, "combiner")]
    metrics = {}
    for table in tables:
        accumulator = table.combiner.create_accumulator()
        for row in range(len(labels)):
            element = metric_types.StandardMetricInputs(
                labels=labels[row : row + 1],
                predictions={name: rows[row] for name, rows in probabilities.items()},
                example_weights=np.ones(1),
            )
            accumulator = table.combiner.add_input(accumulator, element)
        metrics |= table.combiner.extract_output(accumulator)
    found = {}
    for computation in computations:
        if hasattr(computation, "result"):
            found |= {key.model_name: value for key, value in computation.result(metrics).items()}
    assert found == {
        name: pytest.approx((rows.argmax(axis=1) == labels).mean())
        for name, rows in probabilities.items()
    }
