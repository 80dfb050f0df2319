"""Reads the Evaluator's results from its artifacts.

It does not import TFMA, which takes as long as TensorFlow.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import posixpath
import re
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tfx.dsl.io import fileio

from stagecraft.components.evaluator.evaluation import (
    ACCURACY,
    AT_THRESHOLDS,
    BETTER_THAN_CONSTANT,
    COMPARISON,
    ENOUGH,
    EXAMPLE_COUNT,
    FINITE,
    LOSS,
    MAX,
    MIN,
    MISTAKES,
    SAMPLED,
    TOP_LABEL_CALIBRATION,
    Bounds,
    CalibrationBin,
    Comparison,
    Confusions,
    Evaluation,
    Mistake,
    Slice,
    number,
    read_mistakes,
    read_sampled,
)

_AREAS = ("AUC", "AUCPrecisionRecall")
"""Classes of TFMA and Keras whose value is 0, and not NaN, if the examples have one class."""

_DIFFERENCE = "_diff"  # suffix of a metric's name: the candidate's value minus the baseline's
Json = dict[str, Any]

_TFMA = "tensorflow_model_analysis"
_PACKAGES = (_TFMA, f"{_TFMA}.proto")

_NEEDED_FIRST = ("config_pb2", "metrics_for_slice_pb2")
"""In order. The other modules name their messages, but those of TFMA 0.52 do not import them."""


def read_evaluation(directory: str, class_names: Sequence[str] = ()) -> Evaluation:
    """Reads the Evaluator's folder; ``class_names`` in order of the labels, for sentences."""
    config = _config(directory)
    label = next((spec.get("labelKey") for spec in config.get("modelSpecs", ())), None)
    overall: dict[str, float] = {}
    per_class: dict[int, dict[str, float]] = {}
    slices: list[Slice] = []
    mistakes: list[Mistake] = []
    sampled: dict[str, list[float]] = {}
    compared: Comparison | None = None
    at_thresholds: list[Confusions] = []
    areas = {name for name, metric in _configured(config) if metric["className"] in _AREAS}
    for of_slice in load_metrics(directory):
        found = {
            each.key.name + (_DIFFERENCE if each.key.is_diff else ""): each.value
            for each in of_slice.metric_keys_and_values
            if each.key.model_name != "baseline"
        }
        values = {
            name: value.double_value.value or (math.nan if name in areas else 0.0)
            for name, value in found.items()
            if value.HasField("double_value")
        }
        if keys := of_slice.slice_key.single_slice_keys:
            if keys[0].column == label and keys[0].HasField("int64_value"):
                per_class[keys[0].int64_value] = _without_differences(values)
            else:
                named = " and ".join(key.column for key in keys)
                values_of_slice = " and ".join(map(_slice_value, keys))
                slices.append(Slice(named, values_of_slice, _without_differences(values)))
        else:
            overall = values
            if MISTAKES in found:
                mistakes = read_mistakes(found[MISTAKES].bytes_value.decode())
            if SAMPLED in found:
                sampled = read_sampled(found[SAMPLED].bytes_value.decode())
            if COMPARISON in found:
                compared = Comparison(*json.loads(found[COMPARISON].bytes_value.decode()))
            if AT_THRESHOLDS in found:
                at_thresholds = [
                    Confusions(*(getattr(matrix, name) for name in Confusions._fields))
                    for matrix in found[AT_THRESHOLDS].confusion_matrix_at_thresholds.matrices
                ]
    metrics = _without_differences(overall)
    plots = _plots(directory)
    confusion = _confusion(plots)
    comparison = ""
    if BETTER_THAN_CONSTANT in metrics:
        sides = _of_constant(compared) if compared else _of_class(confusion, class_names)
        comparison = _comparison(metrics[BETTER_THAN_CONSTANT], *sides)
    names = [name for name, _ in _configured(config) if name in metrics and name != EXAMPLE_COUNT]
    return Evaluation(
        metrics=metrics,
        changes={
            name.removesuffix(_DIFFERENCE): value
            for name, value in overall.items()
            if name.endswith(_DIFFERENCE)
        },
        per_class=dict(sorted(per_class.items())),
        confusion=confusion,
        calibration=_calibration(plots),
        mistakes=mistakes,
        thresholds=_thresholds(config),
        failures=_failures(directory, comparison),
        monitor=names[0] if names else ACCURACY,
        slices=sorted(slices, key=lambda each: each[:2]),
        sampled=sampled,
        comparison=comparison,
        at_thresholds=at_thresholds,
    )


def _config(directory: str) -> Json:
    with fileio.open(posixpath.join(directory, "eval_config.json")) as file:
        config: Json = json.load(file)["evalConfig"]
    return config


def _configured(config: Json) -> list[tuple[str, Json]]:
    """Name and MetricConfig of each metric; the first is the one that people look at first."""
    found = []
    for spec in config.get("metricsSpecs", ()):
        for metric in spec.get("metrics", ()):
            text = metric.get("config") or "{}"
            arguments = json.loads(text if text.startswith("{") else f"{{{text}}}")
            words = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"  # as TFMA: AUC is auc
            default = re.sub(words, "_", metric["className"]).lower()
            found.append((arguments.get("name", default), metric))
    return found


def _slice_value(key: Any) -> str:
    if key.HasField("bytes_value"):
        return str(key.bytes_value.decode(errors="replace"))
    if key.HasField("int64_value"):
        return str(key.int64_value)
    number = np.float32(key.float_value)
    short = f"{number:g}"
    return short if np.float32(short) == number else f"{number:.9g}"


def _without_differences(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not name.endswith(_DIFFERENCE)}


def _plots(directory: str) -> list[Any]:
    # load_eval_result keeps only one plot per slice.
    return [
        plot
        for of_slice in load_plots(directory)
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
        if plot.key.name == TOP_LABEL_CALIBRATION
        for bucket in plot.value.calibration_histogram_buckets.buckets
        if (count := bucket.num_weighted_examples.value)
    ]


def _thresholds(config: Json) -> dict[str, Bounds]:
    found: dict[str, Bounds] = {}
    for name, metric in _configured(config):
        thresholds = [each["threshold"] for each in metric.get("perSliceThresholds", ())]
        for threshold in [metric.get("threshold", {}), *thresholds]:
            value = threshold.get("valueThreshold", {})
            bounds = {
                bound: float(value[field])
                for bound, field in ((MIN, "lowerBound"), (MAX, "upperBound"))
                if field in value and abs(float(value[field])) < FINITE
            }
            if bounds:
                found.setdefault(name, bounds)
    return found


def _failures(directory: str, comparison: str) -> list[str]:
    validation = load_validation_result(directory)
    return [
        comparison
        if failure.metric_key.name == BETTER_THAN_CONSTANT and comparison
        else _failure(failure)
        for by_slice in validation.metric_validations_per_slice
        for failure in by_slice.failures
    ]


def _failure(failure: Any) -> str:
    name, value = failure.metric_key.name, failure.metric_value.double_value.value
    bounds = failure.metric_threshold.value_threshold
    if not failure.HasField("metric_value"):
        return f"the Evaluator did not compute {name}"
    if not math.isfinite(value):
        if math.isnan(value) and name != LOSS:
            return f"{name} is undefined, not a number"
        return f"{name} is {value}, not a finite number"
    if failure.metric_key.is_diff:
        side = "below" if value < 0 else "above"
        return f"{name} is {number(abs(value))} {side} the last blessed model's"
    if bounds.HasField("lower_bound") and value < bounds.lower_bound.value:
        return f"{name} {number(value)} is below {number(bounds.lower_bound.value)}"
    return f"{name} {number(value)} is above {number(bounds.upper_bound.value)}"


Sides = tuple[str, str, bool]
"""The value of the model, the value of a constant, and whether the former is better."""


def _comparison(confidence: float, model: str, constant: str, is_better: bool) -> str:
    enough = f"{ENOUGH:.0%}"
    if not is_better:
        return f"{model} is not better than {constant}"
    if confidence < ENOUGH:
        return (
            f"{model} may be chance: the confidence that this is better than {constant} is "
            f"{confidence:.1%}, below {enough}"
        )
    shown = f"{confidence:.1%}" if confidence < _SURE else f"more than {_SURE:.1%}"
    return f"{model} is better than {constant}, with a confidence of {shown}"


_SURE = 0.999


def _of_constant(compared: Comparison) -> Sides:
    name = compared.metric
    constant = f"always answering {compared.answer} ({name} {number(compared.constant)})"
    return f"{name} {number(compared.model)}", constant, compared.confidence > 0


def _of_class(confusion: list[list[int]], class_names: Sequence[str]) -> Sides:
    if not confusion:  # an Evaluator with other metrics
        return "the model", "always predicting the most frequent class", True
    labels = [sum(row) for row in confusion]
    num_correct, examples = sum(row[label] for label, row in enumerate(confusion)), sum(labels)
    label = labels.index(max(labels))
    name = repr(class_names[label]) if label < len(class_names) else f"label {label}"
    constant = f"always predicting {name} ({labels[label]:,} of {examples:,})"
    correct = f"{num_correct:,} of {examples:,} correct"
    return correct, constant, num_correct > labels[label]


def load_metrics(directory: str) -> Iterator[Any]:
    """The ``MetricsForSlice`` of each slice, as ``tfma.load_metrics`` reads them."""
    message = _protos("metrics_for_slice_pb2").MetricsForSlice
    return map(message.FromString, _records(directory, "metrics"))


def load_plots(directory: str) -> Iterator[Any]:
    """The ``PlotsForSlice`` of each slice, as ``tfma.load_plots`` reads them."""
    message = _protos("metrics_for_slice_pb2").PlotsForSlice
    return map(message.FromString, _records(directory, "plots"))


def load_validation_result(directory: str) -> Any:
    """The ``ValidationResult``, as ``tfma.load_validation_result`` reads it."""
    (record,) = _records(directory, "validations")
    return _protos("validation_result_pb2").ValidationResult.FromString(record)


def _records(directory: str, kind: str) -> Iterator[bytes]:
    paths = sorted(tf.io.gfile.glob(posixpath.join(directory, f"{kind}*.tfrecord")))
    return iter(tf.data.TFRecordDataset(paths).as_numpy_iterator())


def _protos(name: str) -> types.ModuleType:
    """A module of ``tensorflow_model_analysis.proto``."""
    with _without_init():
        for each in (*_NEEDED_FIRST, name):
            module = importlib.import_module(f"{_PACKAGES[-1]}.{each}")
    return module


@contextlib.contextmanager
def _without_init() -> Iterator[None]:
    """Lets modules of TFMA's packages be imported though the packages are not.

    A package that is imported already stays. A later import of TFMA finds the same modules, so
    each message has one class.
    """
    spec = importlib.util.find_spec(_TFMA)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    bare = [name for name in _PACKAGES if name not in sys.modules]
    for name in bare:
        module = types.ModuleType(name)
        module.__path__ = [posixpath.join(folder, *name.split(".")[1:])]
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in bare:
            del sys.modules[name]
