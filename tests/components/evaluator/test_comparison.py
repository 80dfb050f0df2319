"""The paired test of a model against a constant, held against SciPy and against chance."""

import types

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from stagecraft.components.evaluator.evaluation import ENOUGH, Comparison
from stagecraft.components.evaluator.task_metric import _PairedSums
from stagecraft.trainer_module.data.tasks.kinds.binary_classification import (
    AUC,
    BinaryClassification,
)
from stagecraft.trainer_module.data.tasks.kinds.classification import Classification
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression

NUMBER = Regression({"x": "numeric"}, "y")
CLASSES = Classification({"x": "numeric"}, "y", num_classes=3)
TWO = BinaryClassification({"x": "numeric"}, "y")
NOTHING = {
    "mse": np.zeros(2),
    "mae": np.zeros(2),
    "r2": np.array([0.0, 0.0, 1.0, 1.0]),
    "accuracy": np.zeros(2),
}
"""Sums of metrics that do not refuse: an R² of 1."""


def compared(task, model, constant, weights=None, parts=1, metrics=NOTHING):
    weights = np.ones(len(model)) if weights is None else weights
    combiner = _PairedSums(types.SimpleNamespace(model_name=""), None)
    sums = []
    for rows in np.array_split(np.stack([weights, model, constant], axis=1), parts):
        accumulator = combiner.create_accumulator()
        for row in rows:
            outputs = {"constant": row, "weights": row[:1]}
            element = types.SimpleNamespace(get_predictions=lambda _, given=outputs: given)
            accumulator = combiner.add_input(accumulator, element)
        sums.append(accumulator)
    return Comparison.of(task, combiner.merge_accumulators(sums), metrics)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("shift", [-0.1, 0.02, 0.1, 0.5])
def test_of_numbers_it_is_student_s(shift, parts):
    draw = np.random.default_rng(1)
    constant = draw.gamma(1, 2, 80)
    model = constant + draw.normal(0, 0.6, 80) - shift
    found = compared(NUMBER, model, constant, parts=parts)
    expected = 1 - stats.ttest_1samp(constant - model, 0, alternative="greater").pvalue
    assert found.metric == "mse"
    assert found.model == pytest.approx(model.mean()) and found.constant == pytest.approx(
        constant.mean()
    )
    better = model.mean() < constant.mean()
    assert found.confidence == (pytest.approx(expected, rel=1e-6) if better else 0.0)


def test_weights_are_not_more_examples():
    draw = np.random.default_rng(2)
    constant = draw.gamma(1, 2, 40)
    model = constant - draw.normal(0.2, 1, 40)
    once = compared(NUMBER, model, constant)
    heavier = compared(NUMBER, model, constant, np.full(40, 7.0))
    assert heavier.confidence == pytest.approx(once.confidence)
    left_out = compared(
        NUMBER, np.append(model, 9e9), np.append(constant, 0), np.append(np.ones(40), 0)
    )
    assert left_out == once


@pytest.mark.parametrize(("won", "lost"), [(5, 0), (4, 0), (30, 20), (70, 50), (20, 30)])
def test_of_whole_answers_it_is_the_sign_test(won, lost):
    model = np.repeat([1, 0, 1, 0], [won, lost, 40, 10])
    constant = np.repeat([0, 1, 1, 0], [won, lost, 40, 10])
    found = compared(CLASSES, model, constant)
    expected = stats.binom.cdf(won - 1, won + lost, 0.5) if won > lost else 0.0
    assert found.metric == "accuracy" and found.confidence == pytest.approx(expected)


@pytest.mark.parametrize(
    ("model", "constant"),
    [
        ([], []),
        ([1.5], [3.2]),  # a single example shows nothing
        ([1.0, 2.0], [1.0, 2.0]),
        ([np.nan, 1.0], [2.0, 2.0]),
        ([1.0, 1.0], [np.nan, 2.0]),
        ([np.inf, 1.0], [2.0, 2.0]),
        ([1.0, 1.0], [np.inf, 2.0]),
        ([1e308, 1.0], [1e308, 1e308]),
    ],
)
def test_undefined_or_equal_is_no_better(model, constant):
    found = compared(NUMBER, np.array(model), np.array(constant))
    assert found.confidence == 0


def test_of_numbers_it_also_beats_the_mean_of_these_labels():
    """A hint of the pattern beats the mean of the train split a little, but surely."""
    draw = np.random.default_rng(0)
    labels = draw.normal(0.5, 1, 30)
    errors, of_constant = (0.98 * labels) ** 2, labels**2
    sums = np.array([errors.sum(), labels.sum(), (labels**2).sum(), 30.0])
    r2 = 1 - errors.sum() / ((labels - labels.mean()) ** 2).sum()
    assert r2 < 0 and compared(NUMBER, errors, of_constant).confidence > 0.99
    found = compared(NUMBER, errors, of_constant, metrics=NOTHING | {"r2": sums})
    assert (found.metric, found.constant, found.confidence) == ("r2", 0.0, 0.0)
    assert found.model == pytest.approx(r2)


def test_a_model_without_the_output_is_no_better():
    combiner = _PairedSums(types.SimpleNamespace(model_name=""), None)
    element = types.SimpleNamespace(get_predictions=lambda _: {"loss": np.ones(1)})
    sums = combiner.add_input(combiner.create_accumulator(), element)
    assert Comparison.of(NUMBER, sums, NOTHING).confidence == 0


@pytest.mark.parametrize("count", [20, 200])
@pytest.mark.parametrize("task", [NUMBER, CLASSES], ids=["mse", "accuracy"])
def test_models_that_have_learned_nothing_are_blessed_once_in_twenty_at_most(task, count):
    """Their answers do not depend on the labels, so the constant is at least as good."""
    draw, runs = np.random.default_rng(3), 2000
    blessed = 0
    for _ in range(runs):
        if task is NUMBER:
            labels, answers = draw.standard_gamma(2, count) - 2, draw.normal(0, 0.3, count)
            pair = (answers - labels) ** 2, labels**2
        else:
            labels, answers = draw.integers(0, 3, (2, count))
            pair = answers == labels, labels == 0
        model, constant = (each.astype(float) for each in pair)
        differences = model - constant
        sums = [
            *(count, count, count, count, model.sum(), constant.sum(), differences.sum()),
            *((differences**2).sum(), (differences > 0).sum(), (differences < 0).sum()),
            float(np.isin(differences, (-1, 0, 1)).all()),
        ]
        blessed += Comparison.of(task, sums, NOTHING).confidence >= ENOUGH
    # Four standard errors of a share of 0.05 of the runs.
    assert blessed / runs <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)


def ranked(labels, logits, weights=None):
    """The comparison of logits for labels 0 and 1."""
    metric = AUC()
    terms = metric.terms(tf.constant(logits)[:, None], tf.constant(labels), tf.float64).numpy()
    weights = np.ones(len(labels)) if weights is None else weights
    squared = (weights**2).sum()
    sums = [weights.sum(), squared, weights.sum(), squared, *[0.0] * 6, 0.0]
    return Comparison.of(TWO, sums, NOTHING | {"auc": weights @ terms})


@pytest.mark.parametrize("shift", [-0.5, 0.1, 0.3, 1.0])
def test_of_ranks_it_is_the_test_of_mann_and_whitney(shift):
    draw = np.random.default_rng(5)
    labels = (draw.random(150) < 0.3).astype(np.float32)
    logits = np.round(draw.normal(0, 1, 150) + shift * labels, 1)  # with ties
    buckets = np.ceil(199 / (1 + np.exp(-logits)))
    expected = stats.mannwhitneyu(
        buckets[labels == 1],
        buckets[labels == 0],
        alternative="greater",
        method="asymptotic",
        use_continuity=False,
    )
    found = ranked(labels, logits)
    assert (found.metric, found.constant) == ("auc", 0.5)
    assert found.model == pytest.approx(expected.statistic / (labels.sum() * (1 - labels).sum()))
    better = found.model > 0.5
    assert found.confidence == (pytest.approx(1 - expected.pvalue) if better else 0.0)
    heavier = ranked(labels, logits, np.full(150, 3.0))
    assert heavier.confidence == pytest.approx(found.confidence)


@pytest.mark.parametrize("labels", [np.zeros(30), np.ones(30), np.arange(30) % 2])
def test_a_constant_logit_or_one_class_is_no_better(labels):
    assert ranked(labels.astype(np.float32), np.full(30, -0.3)).confidence == 0


@pytest.mark.parametrize("count", [20, 200])
def test_ranks_of_noise_are_blessed_once_in_twenty(count):
    """Also where nine of ten examples have one label, and its frequency is overestimated."""
    draw, runs = np.random.default_rng(6), 600
    blessed = sum(
        ranked(
            (draw.random(count) < 0.1).astype(np.float32), draw.normal(-3, 0.3, count)
        ).confidence
        >= ENOUGH
        for _ in range(runs)
    )
    assert blessed / runs <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)
