"""Reads the Evaluator's results from its artifacts."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from typing import Any

import tensorflow_model_analysis as tfma
from tfx.dsl.io import fileio

from stagecraft.components.evaluator import better_than_constant, classification, misclassified
from stagecraft.components.evaluator.evaluation import (
    BETTER_THAN_CONSTANT,
    ENOUGH,
    CalibrationBin,
    Evaluation,
    Mistake,
)

_DIFFERENCE = "_diff"  # suffix of a metric's name: the candidate's value minus the baseline's


def read_evaluation(directory: str, class_names: Sequence[str] = ()) -> Evaluation:
    """Reads the Evaluator's folder; ``class_names`` in order of the labels, for sentences."""
    overall: dict[str, float] = {}
    per_class: dict[int, dict[str, float]] = {}
    mistakes: list[Mistake] = []
    for of_slice in tfma.load_metrics(directory):
        found = {
            each.key.name + (_DIFFERENCE if each.key.is_diff else ""): each.value
            for each in of_slice.metric_keys_and_values
            if each.key.model_name != "baseline"
        }
        values = {
            name: value.double_value.value
            for name, value in found.items()
            if value.HasField("double_value")
        }
        if keys := of_slice.slice_key.single_slice_keys:
            per_class[keys[0].int64_value] = _without_differences(values)
        else:
            overall = values
            if misclassified.NAME in found:
                mistakes = misclassified.read(found[misclassified.NAME].bytes_value.decode())
    plots = _plots(directory)
    confusion = _confusion(plots)
    return Evaluation(
        _without_differences(overall),
        {
            name.removesuffix(_DIFFERENCE): value
            for name, value in overall.items()
            if name.endswith(_DIFFERENCE)
        },
        dict(sorted(per_class.items())),
        confusion,
        _calibration(plots),
        mistakes,
        _min_accuracy(directory),
        _failures(directory, confusion, class_names),
    )


def _without_differences(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not name.endswith(_DIFFERENCE)}


def _plots(directory: str) -> list[Any]:
    # load_eval_result keeps only one plot per slice.
    return [
        plot
        for of_slice in tfma.load_plots(directory)
        if not of_slice.slice_key.single_slice_keys
        for plot in of_slice.plot_keys_and_values
        if plot.key.model_name != "baseline"
    ]


def _confusion(plots: list[Any]) -> list[list[int]]:
    cells = [
        (cell.actual_class_id, cell.predicted_class_id, round(cell.num_weighted_examples))
        for plot in plots
        for matrix in plot.value.multi_class_confusion_matrix_at_thresholds.matrices
        for cell in matrix.entries
    ]
    size = 1 + max((max(actual, predicted) for actual, predicted, _ in cells), default=-1)
    matrix = [[0] * size for _ in range(size)]
    for actual, predicted, count in cells:
        matrix[actual][predicted] = count
    return matrix


def _calibration(plots: list[Any]) -> list[CalibrationBin]:
    return [
        CalibrationBin(
            round(count),
            bucket.total_weighted_label.value / count,
            bucket.total_weighted_refined_prediction.value / count,
        )
        for plot in plots
        if plot.key.name == classification.PLOT_NAME
        for bucket in plot.value.calibration_histogram_buckets.buckets
        if (count := bucket.num_weighted_examples.value)
    ]


def _min_accuracy(directory: str) -> float | None:
    with fileio.open(posixpath.join(directory, "eval_config.json")) as file:
        config = json.load(file)["evalConfig"]
    bounds = [
        threshold["threshold"]["valueThreshold"]["lowerBound"]
        for spec in config["metricsSpecs"]
        for metric in spec["metrics"]
        if metric["className"] != better_than_constant.BetterThanConstant.__name__
        for threshold in metric.get("perSliceThresholds", ())
        if "lowerBound" in threshold["threshold"].get("valueThreshold", {})
    ]
    return float(bounds[0]) if bounds else None


def _failures(directory: str, confusion: list[list[int]], class_names: Sequence[str]) -> list[str]:
    validation = tfma.load_validation_result(directory)
    sentences = []
    for by_slice in validation.metric_validations_per_slice:
        for failure in by_slice.failures:
            value = failure.metric_value.double_value.value
            if failure.metric_key.name == BETTER_THAN_CONSTANT:
                sentences.append(_no_better(value, confusion, class_names))
            elif failure.metric_key.is_diff:
                sentences.append(
                    f"{failure.metric_key.name} is {-value:.4f} below the last blessed model's"
                )
            else:
                bound = failure.metric_threshold.value_threshold.lower_bound.value
                sentences.append(f"{failure.metric_key.name} {value:.4f} is below {bound:.4f}")
    return sentences


def _no_better(value: float, confusion: list[list[int]], class_names: Sequence[str]) -> str:
    enough = f"{ENOUGH:.0%}"
    if not confusion:  # an Evaluator with other metrics
        return (
            "the confidence that the model is better than always predicting the most frequent "
            f"class is {value:.1%}, below {enough}"
        )
    labels = [sum(row) for row in confusion]
    num_correct, examples = sum(row[label] for label, row in enumerate(confusion)), sum(labels)
    label = labels.index(max(labels))
    name = repr(class_names[label]) if label < len(class_names) else f"label {label}"
    correct = f"{num_correct:,} of {examples:,} correct"
    constant = f"always predicting {name} ({labels[label]:,} of {examples:,})"
    if num_correct <= labels[label]:
        return f"{correct} is not better than {constant}"
    return (
        f"{correct} may be chance: the confidence that this is better than {constant} is "
        f"{value:.1%}, below {enough}"
    )
