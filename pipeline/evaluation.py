"""What the Evaluator measures, when it blesses, and how its results are read."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow_model_analysis as tfma
from google.protobuf.wrappers_pb2 import DoubleValue
from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it

from stagecraft.pipeline.settings import EvaluateSettings
from stagecraft.schemas import features

CLASSIFICATION = "stagecraft.components.classification"

ACCURACY, TOP_3, LOSS = "accuracy", "top_3_accuracy", "loss"


def eval_config(settings: EvaluateSettings) -> config_pb2.EvalConfig:
    """Accuracy, top-3 accuracy, loss and confusion matrix, overall and per class; calibration.

    A Keras 3 model is evaluated through its signature, on raw examples: labels are not transformed,
    and transformed pictures would travel through every step of the evaluation for nothing.
    """
    threshold = config_pb2.MetricThreshold(
        value_threshold=config_pb2.GenericValueThreshold(
            lower_bound=DoubleValue(value=settings.min_accuracy)
        )
    )
    if settings.not_worse:
        # Ignored by TFX where there is no baseline. Equal is good enough.
        threshold.change_threshold.direction = config_pb2.MetricDirection.HIGHER_IS_BETTER
        threshold.change_threshold.absolute.value = -1e-9
    metrics = [
        config_pb2.MetricConfig(
            class_name="Accuracy",
            module=CLASSIFICATION,
            config=f'"name": "{ACCURACY}"',
            per_slice_thresholds=[  # a plain threshold would hold for every class
                config_pb2.PerSliceMetricThreshold(
                    slicing_specs=[config_pb2.SlicingSpec()], threshold=threshold
                )
            ],
        ),
        *(
            config_pb2.MetricConfig(class_name=name, module=CLASSIFICATION)
            for name in ("TopAccuracy", "CrossEntropy", "ExpectedCalibrationError")
        ),
        config_pb2.MetricConfig(class_name="ExampleCount"),
        config_pb2.MetricConfig(class_name="MultiClassConfusionMatrixPlot"),
    ]
    return config_pb2.EvalConfig(
        model_specs=[
            config_pb2.ModelSpec(
                signature_name="serving_default",
                label_key=features.LABEL,
                prediction_key="probabilities",
            )
        ],
        slicing_specs=[
            config_pb2.SlicingSpec(),
            config_pb2.SlicingSpec(feature_keys=[features.LABEL]),
        ],
        metrics_specs=[config_pb2.MetricsSpec(metrics=metrics)],
    )


class Evaluation(NamedTuple):
    """What the Evaluator found on the eval split."""

    metrics: dict[str, float]
    """Overall: accuracy, top_3_accuracy, loss, example_count, expected_calibration_error."""

    per_class: dict[int, dict[str, float]]
    """The same metrics per label."""

    confusion: list[list[int]]
    """``[actual][predicted]`` example counts, square."""

    failures: list[str]
    """Why the model is not blessed, a sentence each; empty when it is."""


def read_evaluation(directory: str) -> Evaluation:
    """Reads the folder that the Evaluator wrote (its ``evaluation`` artifact)."""
    result = tfma.load_eval_result(directory)
    metrics: dict[str, float] = {}
    per_class: dict[int, dict[str, float]] = {}
    for slice_key, by_output in result.slicing_metrics:
        values = {
            name: value["doubleValue"]
            for name, value in by_output[""][""].items()
            if "doubleValue" in value and not name.endswith("_diff")  # to the baseline
        }
        if slice_key:
            per_class[int(slice_key[0][1])] = values
        else:
            metrics = values
    return Evaluation(
        metrics, dict(sorted(per_class.items())), _confusion(directory), _failures(directory)
    )


def _confusion(directory: str) -> list[list[int]]:
    # Not load_eval_result, which keeps one of the plots of a slice.
    cells = [
        (cell.actual_class_id, cell.predicted_class_id, round(cell.num_weighted_examples))
        for of_slice in tfma.load_plots(directory)
        if not of_slice.slice_key.single_slice_keys
        for plot in of_slice.plot_keys_and_values
        if plot.key.model_name != "baseline"
        for matrix in plot.value.multi_class_confusion_matrix_at_thresholds.matrices
        for cell in matrix.entries
    ]
    size = 1 + max(max(actual, predicted) for actual, predicted, _ in cells)
    matrix = [[0] * size for _ in range(size)]
    for actual, predicted, count in cells:
        matrix[actual][predicted] = count
    return matrix


def _failures(directory: str) -> list[str]:
    validation = tfma.load_validation_result(directory)
    sentences = []
    for by_slice in validation.metric_validations_per_slice:
        for failure in by_slice.failures:
            value = failure.metric_value.double_value.value
            threshold = failure.metric_threshold
            if failure.metric_key.is_diff:
                sentences.append(
                    f"{failure.metric_key.name} is {-value:.4f} below the last blessed model's"
                )
            else:
                bound = threshold.value_threshold.lower_bound.value
                sentences.append(f"{failure.metric_key.name} {value:.4f} is below {bound:.4f}")
    return sentences
