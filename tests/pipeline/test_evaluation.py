"""The gate: TFMA with our settings' metrics and thresholds, on answers that are given."""

import shutil

import houses_task
import numpy as np
import pandas as pd
import pytest
import tensorflow_model_analysis as tfma
from tfx.types import standard_artifacts

from stagecraft.common.errors import SettingError
from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.pipeline.data import eval_config
from stagecraft.pipeline.local import summary
from stagecraft.pipeline.settings import EvaluateSettings, PipelineSettings
from stagecraft.schemas import features
from stagecraft.trainer_module import registries

NAMES = ("cat", "dog", "frog")


def evaluate(folder, labels, answers, **settings):
    """Whether the Evaluator would bless a model that answers so, and what is read of it."""
    config = tfma.utils.update_eval_config_with_defaults(  # as TFX's Evaluator does it
        eval_config(EvaluateSettings(**settings)), has_baseline=False, rubber_stamp=True
    )
    answered = 0.1 + 0.7 * np.eye(3)[answers]
    data = pd.DataFrame({"label": labels, "probabilities": list(answered)})
    tfma.analyze_raw_data(data, config, str(folder))
    blessed = tfma.load_validation_result(str(folder)).validation_ok
    return blessed, read_evaluation(str(folder), NAMES)


def _answers(labels, right):
    """The first so many are right."""
    wrong = np.arange(len(labels)) >= right
    return (labels + wrong) % 3


LABELS = np.repeat([0, 1, 2], [28, 42, 30])


def test_chance_level_is_not_blessed(tmp_path):
    blessed, found = evaluate(tmp_path, LABELS, _answers(LABELS, 33), min_accuracy=0.5)
    assert not blessed
    why = "33 of 100 correct is not better than always predicting {} (42 of 100)"
    assert sorted(found.failures) == [why.format("'dog'"), "accuracy 0.3300 is below 0.5000"]
    assert found.metrics["better_than_constant"] < 0.1 and found.min_accuracy == 0.5
    for names in ((), NAMES[:1]):  # a schema may have no names
        assert why.format("label 1") in read_evaluation(str(tmp_path), names).failures
    assert why.format("'ring'") in _on_screen(tmp_path)


def _on_screen(evaluation):
    """Why a model is not blessed, in a run on the sample."""
    found, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
    found.uri = str(evaluation)
    blessing.set_int_custom_property("blessed", 0)
    schema = standard_artifacts.Schema()
    schema.uri = str(evaluation / "schema")
    (evaluation / "schema").mkdir()
    shutil.copy(features.SAMPLE.schema_file, schema.uri)
    outputs = {
        "Evaluator": {"evaluation": [found], "blessing": [blessing]},
        "ImportSchema": {"schema": [schema]},
    }
    return summary.report(outputs)["not_blessed_because"]


@pytest.mark.slow
def test_a_little_better_may_be_chance(tmp_path):
    blessed, found = evaluate(tmp_path, LABELS, _answers(LABELS, 50))
    assert not blessed
    [why] = found.failures
    assert why.startswith("50 of 100 correct may be chance") and "'dog' (42 of 100)" in why
    assert f"{found.metrics['better_than_constant']:.1%}, below 95%" in why


@pytest.mark.slow
def test_better_is_blessed(tmp_path):
    blessed, found = evaluate(tmp_path, LABELS, _answers(LABELS, 52))
    assert blessed and found.failures == []
    assert 0.95 <= found.metrics["better_than_constant"] < 1
    assert found.min_accuracy == 0


@pytest.mark.slow
def test_a_setting_turns_it_off(tmp_path):
    blessed, found = evaluate(tmp_path, LABELS, np.ones_like(LABELS), better_than_constant=False)
    assert blessed and found.failures == []


@pytest.mark.slow
def test_one_class_only_shows_nothing(tmp_path):
    labels = np.full(50, 2)
    blessed, found = evaluate(tmp_path, labels, labels)
    assert not blessed
    [why] = found.failures
    assert "'frog' (50 of 50)" in why


def test_thresholds_of_any_metric_and_slices():
    settings = EvaluateSettings(thresholds={"loss": {"max": 2}}, slices=("id",), min_accuracy=0.25)
    config = eval_config(settings)
    [spec] = config.metrics_specs
    bounds = {
        metric.config: metric.per_slice_thresholds[0].threshold.value_threshold
        for metric in spec.metrics
        if metric.per_slice_thresholds
    }
    assert bounds['"name": "loss"'].upper_bound.value == 2
    assert bounds['"name": "accuracy"'].lower_bound.value == 0.25
    assert [list(each.feature_keys) for each in config.slicing_specs] == [[], ["label"], ["id"]]


@pytest.mark.parametrize(
    ("changes", "setting", "suggestion"),
    [
        ({"thresholds": {"los": {"max": 2}}}, "evaluate.thresholds", "loss"),
        (
            {"thresholds": {"mse": {"max": 2}}},
            "evaluate.thresholds",
            "one of accuracy, top_3_accuracy, loss, expected_calibration_error",
        ),
        (
            {"thresholds": {"accuracy": {"min": 0.5}}, "min_accuracy": 0.4},
            "evaluate.min_accuracy",
            "evaluate.thresholds for accuracy, top_3_accuracy, loss, expected_calibration_error",
        ),
    ],
    ids=["near", "unknown", "twice"],
)
def test_metrics_that_cannot_be_meant(changes, setting, suggestion):
    pictures = registries.TASKS.get("image_classification")
    with pytest.raises(SettingError) as refused:
        EvaluateSettings(**changes).check_metrics(pictures)
    assert (refused.value.setting, refused.value.suggestion) == (setting, suggestion)
    with pytest.raises(ValueError, match=setting):
        PipelineSettings.model_validate({"evaluate": changes})


def test_a_task_without_accuracy():
    with pytest.raises(SettingError) as refused:
        EvaluateSettings(min_accuracy=0.5).check_metrics(houses_task.HOUSES)
    assert refused.value.setting == "evaluate.min_accuracy"


@pytest.mark.parametrize("bounds", [{}, {"min": 2, "max": 1}, {"min": float("nan")}, {"least": 1}])
def test_bounds_that_nothing_meets(bounds):
    with pytest.raises(ValueError, match="thresholds"):
        EvaluateSettings(thresholds={"loss": bounds})


def test_a_slice_that_the_schema_lacks():
    schema = features.SAMPLE.schema_file
    eval_config(EvaluateSettings(slices=("id",)), schema_path=schema)
    with pytest.raises(SettingError) as refused:
        eval_config(EvaluateSettings(slices=("id", "regoin")), schema_path=schema)
    assert (refused.value.setting, refused.value.value) == ("evaluate.slices", "regoin")
    assert "label" in refused.value.suggestion
