"""An evaluation of a classifier, as plain data; and whether it is better than a constant.

Imports nothing heavy. The number of correct predictions among ``n`` examples is compared with
Binomial(n, p). Here p is the share of the most frequent label among the same examples: the accuracy
of a model that always predicts this label. The test is exact and one-sided. A confidence of 95 %
means that the lower 95 % bound of the accuracy is at least p (Clopper and Pearson 1934, "The use of
confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26).
"""

from __future__ import annotations

from typing import NamedTuple

ACCURACY, TOP_3, LOSS = "accuracy", "top_3_accuracy", "loss"
BETTER_THAN_CONSTANT = "better_than_constant"  # name of the setting and of the metric
ENOUGH = 0.95  # confidence from which a model counts as better


class Mistake(NamedTuple):
    """A misclassified example."""

    confidence: float  # probability of ``predicted``; the first field, so that mistakes sort by it
    id: int
    actual: int
    predicted: int
    probability: float  # of ``actual``


class CalibrationBin(NamedTuple):
    """Predictions of similar confidence."""

    examples: int
    accuracy: float  # share of the predictions that are correct
    confidence: float


class Evaluation(NamedTuple):
    """The Evaluator's results on the eval split."""

    metrics: dict[str, float]
    """Overall: accuracy, top_3_accuracy, loss, example_count, expected_calibration_error,
    better_than_constant."""
    changes: dict[str, float]
    """The same metrics, minus those of the last blessed model; empty without one."""
    per_class: dict[int, dict[str, float]]  # the same metrics per label
    confusion: list[list[int]]  # ``[actual][predicted]`` example counts, square
    calibration: list[CalibrationBin]  # by confidence, without empty bins
    mistakes: list[Mistake]
    """Most confident first; empty without the metric ``MostConfidentlyWrong``."""
    min_accuracy: float | None  # accuracy below which no model is blessed; None: no such threshold
    failures: list[str]  # why the model is not blessed, a sentence each; empty if it is


def confidence(num_correct: int, most_frequent: int, examples: int) -> float:
    """Confidence, 0 to 1, that an accuracy is above the share of the most frequent label.

    It is ``P(X < num_correct)`` for X from Binomial(examples, most_frequent / examples).
    """
    from scipy import special  # TFMA depends on it

    if not num_correct:
        return 0.0
    return float(special.bdtr(num_correct - 1, examples, most_frequent / examples))
