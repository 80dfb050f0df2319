"""The EvalConfig: what the Evaluator measures, and when it blesses a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from google.protobuf.wrappers_pb2 import DoubleValue
from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it

from stagecraft.components.evaluator.evaluation import (
    ACCURACY,
    AT_THRESHOLDS,
    BETTER_THAN_CONSTANT,
    CALIBRATION_ERROR,
    ENOUGH,
    EXAMPLE_COUNT,
    FINITE,
    LOSS,
    MAX,
    MIN,
    TOP_3,
    Bounds,
    binary_metrics,
    is_binary,
    metric_names,
)
from stagecraft.trainer_module.settings import TaskSettings

CLASSIFICATION_METRICS = "stagecraft.components.evaluator.classification_metrics"
TASK_METRIC = "stagecraft.components.evaluator.task_metric"

_SLACK = 1e-9  # an equal value is enough
_NO_BOUNDS: Mapping[str, Bounds] = MappingProxyType({})


def make_eval_config(
    *,
    task: TaskSettings | None = None,
    min_accuracy: float = 0.0,
    not_worse: bool,
    better_than_constant: bool,
    thresholds: Mapping[str, Bounds] = _NO_BOUNDS,
    slices: Sequence[str] = (),
) -> config_pb2.EvalConfig:
    """Measures the metrics of a task, overall and per slice.

    For classes, these are accuracy, top-3 accuracy, loss and confusion matrix, also per class;
    calibration and the most confident errors. For other tasks, these are the task's own metrics and
    its loss; for a binary task, also TFMA's precision, recall, F1, and confusion matrices. A model
    whose loss is not a finite number, or whose ``monitor`` is undefined, such as the area under a
    ROC curve for one class, is then not blessed. For both, the metric ``better_than_constant`` is
    the confidence that the model is better than a constant.

    A Keras 3 model is evaluated through its signature on raw examples. Labels are not transformed,
    and TFMA would pass transformed images through every step for nothing.

    Args:
        task: default: ``image_classification``.
        min_accuracy: the same as a ``min`` of accuracy in ``thresholds``.
        not_worse: requires that the task's ``monitor`` is not worse than that of the last blessed
            model.
        better_than_constant: requires this with a confidence of 95 %; ignored for a task that has
            neither classes nor a constant.
        thresholds: by name of a metric.
        slices: features; the metrics are also measured for each of their values. Tasks with
            classes add their label.
    """
    task = task or TaskSettings()
    found = task.found
    bounds = {name: dict(each) for name, each in thresholds.items()}
    if found.class_label is not None:
        bounds.setdefault(ACCURACY, {}).setdefault(MIN, min_accuracy)
        metrics = _of_classes(better_than_constant)
        spec = config_pb2.ModelSpec(
            signature_name="serving_default",
            label_key=found.class_label,
            prediction_key="probabilities",
        )
        slices = list(dict.fromkeys((found.class_label, *slices)))
    else:
        for name in (LOSS, found.monitor):  # neither NaN nor undefined
            bounds.setdefault(name, {}).setdefault(MAX, FINITE)
        metrics = _of_task(task, better_than_constant)
        spec = config_pb2.ModelSpec(signature_name="evaluation")
        slices = list(dict.fromkeys((*found.slices, *slices)))
    for metric in metrics:
        name = json.loads(f"{{{metric.config}}}").get("name", "")
        # TFX ignores a change threshold without a baseline.
        compared = not_worse and name == found.monitor
        if name in bounds or compared:
            threshold = _threshold(bounds.get(name, {}))
            if compared:
                _require_not_worse(threshold, found.higher_is_better(name))
            metric.per_slice_thresholds.extend(_overall(threshold))
    return config_pb2.EvalConfig(
        model_specs=[spec],
        slicing_specs=[
            config_pb2.SlicingSpec(),
            *(config_pb2.SlicingSpec(feature_keys=[feature]) for feature in slices),
        ],
        metrics_specs=[config_pb2.MetricsSpec(metrics=metrics)],
    )


def _of_classes(better_than_constant: bool) -> list[config_pb2.MetricConfig]:
    of_table = [
        config_pb2.MetricConfig(
            class_name=class_name, module=CLASSIFICATION_METRICS, config=f'"name": "{name}"'
        )
        for class_name, name in (
            ("Accuracy", ACCURACY),
            ("TopAccuracy", TOP_3),
            ("CrossEntropy", LOSS),
            ("ExpectedCalibrationError", CALIBRATION_ERROR),
        )
    ]
    return [
        *of_table[:1],
        config_pb2.MetricConfig(
            class_name="BetterThanConstant",
            module=CLASSIFICATION_METRICS,
            per_slice_thresholds=_enough(better_than_constant),
        ),
        *of_table[1:],
        config_pb2.MetricConfig(class_name="MostConfidentlyWrong", module=CLASSIFICATION_METRICS),
        config_pb2.MetricConfig(class_name="ExampleCount"),
        config_pb2.MetricConfig(class_name="ConfusionMatrix", module=CLASSIFICATION_METRICS),
    ]


def _of_task(task: TaskSettings, better_than_constant: bool) -> list[config_pb2.MetricConfig]:
    arguments = json.dumps(task.model_dump(mode="json", exclude_none=True))
    of_binary = binary_metrics(task.found)
    compared = config_pb2.MetricConfig(
        class_name="TaskBetterThanConstant",
        module=TASK_METRIC,
        config=f'"name": "{BETTER_THAN_CONSTANT}", "task": {arguments}',
        per_slice_thresholds=_enough(better_than_constant),
    )
    return [
        *(
            config_pb2.MetricConfig(
                class_name="TaskMetric",
                module=TASK_METRIC,
                config=f'"name": "{name}", "task": {arguments}',
            )
            for name in metric_names(task.found)
            if name not in of_binary
        ),
        *(
            config_pb2.MetricConfig(
                class_name="BinaryMetric", module=TASK_METRIC, config=f'"name": "{name}"'
            )
            for name in (*of_binary, *([AT_THRESHOLDS] if is_binary(task.found) else []))
        ),
        *([compared] if task.found.constant() else []),
        config_pb2.MetricConfig(class_name="SampledPredictions", module=TASK_METRIC),
        config_pb2.MetricConfig(
            class_name="NonzeroExampleCount",
            module=TASK_METRIC,
            config=f'"name": "{EXAMPLE_COUNT}"',
        ),
    ]


def _enough(better_than_constant: bool) -> list[config_pb2.PerSliceMetricThreshold]:
    return _overall(_threshold({MIN: ENOUGH})) if better_than_constant else []


def _threshold(bounds: Bounds) -> config_pb2.MetricThreshold:
    threshold = config_pb2.MetricThreshold()
    for name, field in ((MIN, "lower_bound"), (MAX, "upper_bound")):
        if name in bounds:
            value = DoubleValue(value=bounds[name])
            getattr(threshold.value_threshold, field).CopyFrom(value)
    return threshold


def _require_not_worse(threshold: config_pb2.MetricThreshold, higher_is_better: bool) -> None:
    change = threshold.change_threshold
    directions = config_pb2.MetricDirection
    if higher_is_better:
        change.direction, change.absolute.value = directions.HIGHER_IS_BETTER, -_SLACK
    else:
        change.direction, change.absolute.value = directions.LOWER_IS_BETTER, _SLACK


def _overall(threshold: config_pb2.MetricThreshold) -> list[config_pb2.PerSliceMetricThreshold]:
    """The threshold for all examples together; without a slice, it would apply to each class."""
    return [
        config_pb2.PerSliceMetricThreshold(
            slicing_specs=[config_pb2.SlicingSpec()], threshold=threshold
        )
    ]
