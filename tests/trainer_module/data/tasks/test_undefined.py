"""A metric that is not defined is no number: not the best, not the worst, and never blessed."""

import math
import types

import numpy as np
import pytest
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_specs
from tensorflow_model_analysis.proto import config_pb2
from tfx.types import standard_artifacts

from stagecraft.components.evaluator import results
from stagecraft.components.evaluator.eval_config import make_eval_config
from stagecraft.components.evaluator.evaluation import number, short
from stagecraft.components.report.pages import charts, formats, sentences
from stagecraft.objects import compiled as keras_like
from stagecraft.pipeline.local import summary
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.data.tasks.kinds.binary_classification import AUC
from stagecraft.trainer_module.data.tasks.kinds.regression import R2
from stagecraft.trainer_module.data.tasks.metric import Mean, MeanIoU, Ratio
from stagecraft.trainer_module.settings import TaskSettings, TrainingSettings, TrainSettings
from stagecraft.trainer_module.training.early_stopping import Watch
from stagecraft.trainer_module.training.monitoring.curve import Curve, Point

TASK = {"name": "binary_classification", "args": {"features": {"x": "numeric"}, "label": "y"}}
OF_ONE_CLASS = np.eye(400)[100] * 5
PERFECT = np.eye(400)[199] + np.eye(400)[200]


@pytest.mark.parametrize(
    ("metric", "sums"),
    [
        (AUC(), OF_ONE_CLASS),
        (AUC(), np.roll(OF_ONE_CLASS, 200)),
        (AUC(), np.zeros(400)),
        (R2(), np.zeros(4)),
        (R2(), np.array([1.0, 6.0, 12.0, 3.0])),
        (Mean("m", None), np.zeros(2)),
        (Ratio("r", None), np.zeros(2)),
        (MeanIoU(2), np.zeros(4)),
    ],
)
def test_it_is_not_zero(metric, sums):
    assert math.isnan(metric.result(sums))


def test_it_is_a_number_where_it_is_defined():
    assert AUC().result(PERFECT) == 1
    # Residuals 1; labels 1, 2, 3 with a sum of squared deviations of 2.
    assert R2().result(np.array([1.0, 6.0, 14.0, 3.0])) == pytest.approx(0.5)
    assert keras_like.metric("mae").result(np.zeros(2)) == 0  # as in Keras


def evaluations(aucs, losses):
    return [
        Evaluation(n + 1, loss, auc=auc)
        for n, (auc, loss) in enumerate(zip(aucs, losses, strict=True))
    ]


NAN = math.nan


@pytest.mark.parametrize(
    ("aucs", "losses", "best", "by"),
    [
        ([NAN] * 3, [0.3, 0.1, 0.2], 2, "loss"),
        ([NAN, 0.6, 0.5], [0.1, 0.3, 0.2], 2, "auc"),
        ([0.5, 0.5, 0.4], [0.3, 0.2, 0.1], 2, "auc"),
    ],
)
def test_which_metric_chooses_the_step(aucs, losses, best, by):
    task, given = TaskSettings(**TASK).found, evaluations(aucs, losses)
    assert task.ranked(given)[0].step == best
    assert task.chooses(given) == by
    assert task.chooses([]) == "auc"


def test_early_stopping_and_plateaus_follow_the_loss():
    task = TaskSettings(**TASK).found
    improving = evaluations([NAN] * 6, [0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    worse = evaluations([NAN] * 4, [0.1, 0.2, 0.3, 0.4])
    stops = Watch(TrainSettings(early_stopping_patience=2), task).stops
    assert not stops(improving) and stops(worse)
    plateau = {"schedule": "reduce_on_plateau", "learning_rate": 0.1}
    arguments = {"factor": 0.5, "patience": 2}
    factor = Watch(TrainSettings(**plateau, schedule_args=arguments), task).factor
    assert factor(improving) == 1 and factor(worse) == 0.5


@pytest.mark.parametrize(
    ("auc", "thresholds", "passes"),
    [
        (0.9, {}, True),
        (NAN, {}, False),
        (NAN, {"auc": {"min": 0.0}}, False),
        (NAN, {"auc": {"max": 1.0}}, False),
        (0.9, {"auc": {"min": 0.8}}, True),
        (0.7, {"auc": {"min": 0.8}}, False),
    ],
)
def test_a_gate_on_it_does_not_bless(auc, thresholds, passes, tmp_path, monkeypatch):
    config = make_eval_config(
        task=TaskSettings(**TASK),
        not_worse=False,
        better_than_constant=False,
        thresholds=thresholds,
    )
    found = metric_specs.metric_thresholds_from_metrics_specs(config.metrics_specs, config)
    values = {key: auc if key.name == "auc" else 0.3 for key in found}
    validation = metrics_validator.validate_metrics(((), values), config)
    assert validation.validation_ok is passes
    monkeypatch.setattr(results, "load_validation_result", lambda _: validation)
    failures = results._failures(str(tmp_path), "")
    assert bool(failures) is not passes
    for why in failures:
        assert why.startswith("auc ")


def test_a_comparison_with_it_does_not_bless():
    config = make_eval_config(task=TaskSettings(**TASK), not_worse=True, better_than_constant=False)
    spec = config_pb2.ModelSpec(name="baseline", is_baseline=True)
    config.model_specs.add().CopyFrom(spec)
    found = metric_specs.metric_thresholds_from_metrics_specs(config.metrics_specs, config)
    for change in (NAN, 0.0):
        values = {key: change if key.is_diff else 0.3 for key in found}
        assert any(key.is_diff for key in found)
        validation = metrics_validator.validate_metrics(((), values), config)
        assert validation.validation_ok is (change == 0)


def test_the_screen_says_what_chose():
    assert number(NAN) == short(NAN) == formats.metric("accuracy", NAN) == formats.percent(NAN)
    assert number(NAN) == "–" and number(0.0) == "0.0000"
    model = standard_artifacts.Model()
    model.set_string_custom_property("monitor", "auc")
    model.set_int_custom_property("steps", 12)
    model.set_float_custom_property("images_per_second", 100.0)
    model.set_float_custom_property("val_loss", 0.25)
    text = summary.figure("Trainer", {"model": [model]})
    assert "val auc –" in text and "val loss 0.250" in text


def test_the_report_says_what_chose():
    given = evaluations([NAN, NAN], [0.3, 0.2])
    record = {
        "settings": TrainingSettings(task=TASK).flat(),
        "steps": 2,
        "resumed_from": 0,
        "images_per_second": 1.0,
        "best": given[1].flat(),
        "chosen_by": TaskSettings(**TASK).found.chooses(given),
        "evaluations": [each.flat() for each in given],
    }
    points = [Point(step, 0.5, {"auc": NAN}, 0.1, 9.0) for step in (1, 2)]
    training = types.SimpleNamespace(record=record, curve=points)
    text = sentences.trained(training)
    assert "auc –" in text and "AUC is undefined" in text and "least loss chose" in text
    titles = [each.title for each in charts.curves(training)]
    assert "AUC" in titles


def test_a_curve_keeps_what_is_defined():
    found = Curve()
    for step in range(1, 1001):
        auc = NAN if step % 2 else 0.5
        found.add(Point(step, 1.0, {"auc": auc}, 0.1, 9.0))
    assert {point.metrics["auc"] for point in found.points} == {0.5}
