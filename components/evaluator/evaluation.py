"""An evaluation of a classifier, as plain data. Imports nothing heavy."""

from __future__ import annotations

from typing import NamedTuple

ACCURACY, TOP_3, LOSS = "accuracy", "top_3_accuracy", "loss"


class Mistake(NamedTuple):
    """A misclassified example."""

    confidence: float
    """Probability of ``predicted``; the first field, so that mistakes sort by it."""
    id: int
    actual: int
    predicted: int
    probability: float
    """Of ``actual``."""


class CalibrationBin(NamedTuple):
    """Predictions of similar confidence."""

    examples: int
    accuracy: float
    """Share of the predictions that are correct."""
    confidence: float


class Evaluation(NamedTuple):
    """The Evaluator's results on the eval split."""

    metrics: dict[str, float]
    """Overall: accuracy, top_3_accuracy, loss, example_count, expected_calibration_error,
    better_than_constant."""
    changes: dict[str, float]
    """The same metrics, minus those of the last blessed model; empty without one."""
    per_class: dict[int, dict[str, float]]
    """The same metrics per label."""
    confusion: list[list[int]]
    """``[actual][predicted]`` example counts, square."""
    calibration: list[CalibrationBin]
    """By confidence, without empty bins."""
    mistakes: list[Mistake]
    """Most confident first; empty without the metric ``MostConfidentlyWrong``."""
    min_accuracy: float | None
    """Accuracy below which no model is blessed; None: no such threshold."""
    failures: list[str]
    """Why the model is not blessed, a sentence each; empty if it is."""
