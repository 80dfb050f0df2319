"""The EvalConfig: what the Evaluator measures, and when it blesses a model."""

from __future__ import annotations

from google.protobuf.wrappers_pb2 import DoubleValue
from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it

from stagecraft.components.evaluator.evaluation import ACCURACY, ENOUGH
from stagecraft.schemas import features

CLASSIFICATION = "stagecraft.components.evaluator.classification"
MISCLASSIFIED = "stagecraft.components.evaluator.misclassified"
BETTER_THAN_CONSTANT = "stagecraft.components.evaluator.better_than_constant"


def make_eval_config(
    *, min_accuracy: float, not_worse: bool, better_than_constant: bool
) -> config_pb2.EvalConfig:
    """Measures accuracy, top-3 accuracy, loss and confusion matrix, overall and per class; also
    calibration, the most confident errors, and whether the model is better than a constant.

    A Keras 3 model is evaluated through its signature on raw examples. Labels are not transformed,
    and TFMA would pass transformed images through every step for nothing.
    """
    threshold = _at_least(min_accuracy)
    if not_worse:
        # TFX ignores this without a baseline. An equal accuracy is enough.
        threshold.change_threshold.direction = config_pb2.MetricDirection.HIGHER_IS_BETTER
        threshold.change_threshold.absolute.value = -1e-9
    metrics = [
        config_pb2.MetricConfig(
            class_name="Accuracy",
            module=CLASSIFICATION,
            config=f'"name": "{ACCURACY}"',
            per_slice_thresholds=_overall(threshold),
        ),
        config_pb2.MetricConfig(
            class_name="BetterThanConstant",
            module=BETTER_THAN_CONSTANT,
            per_slice_thresholds=(_overall(_at_least(ENOUGH)) if better_than_constant else ()),
        ),
        *(
            config_pb2.MetricConfig(class_name=name, module=CLASSIFICATION)
            for name in ("TopAccuracy", "CrossEntropy", "ExpectedCalibrationError")
        ),
        config_pb2.MetricConfig(class_name="MostConfidentlyWrong", module=MISCLASSIFIED),
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


def _at_least(value: float) -> config_pb2.MetricThreshold:
    return config_pb2.MetricThreshold(
        value_threshold=config_pb2.GenericValueThreshold(lower_bound=DoubleValue(value=value))
    )


def _overall(threshold: config_pb2.MetricThreshold) -> list[config_pb2.PerSliceMetricThreshold]:
    """The threshold for all examples together; without a slice, it would apply to each class."""
    return [
        config_pb2.PerSliceMetricThreshold(
            slicing_specs=[config_pb2.SlicingSpec()], threshold=threshold
        )
    ]
