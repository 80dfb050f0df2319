"""Labels of a regression are scaled in Transform, and in their own unit everywhere else."""

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal
from transformed import transformed

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.settings import TaskSettings, TrainingSettings

SCHEMA = """
feature { name: "x" type: FLOAT presence { min_fraction: 1 } shape {} }
feature { name: "y" type: %s presence { min_fraction: 1 } shape {} }
"""
ARGS = {"features": {"x": "numeric"}, "label": "y"}
DRAW = np.random.default_rng(0)
LABELS = {
    "prices": DRAW.uniform(1e5, 1e6, 50).tolist(),
    "small": DRAW.normal(0, 1e-6, 50).tolist(),
    "far": (2_000_000_000_000 + DRAW.integers(0, 9, 50)).tolist(),  # float32 would hide all
    "huge": (1e9 * DRAW.normal(0, 1, 50)).tolist(),
    "equal": [0.1] * 50,
    "zero": [0] * 50,
}


class Logarithm(Regression):
    def to_label(self, raw):
        return tf.math.log(tf.cast(tf.reshape(raw, [-1]), tf.float32))


def features_of(task, labels, folder):
    kind = "INT" if isinstance(labels[0], int) else "FLOAT"
    schema = folder / "schema.pbtxt"
    schema.write_text(SCHEMA % kind)
    rows = [{"x": float(number), "y": label} for number, label in enumerate(labels)]
    graph = transformed(task, schema, rows, folder, function=task.preprocess)
    raw = {"x": tf.range(50.0), "y": tf.constant(labels, tf.int64 if kind == "INT" else tf.float32)}
    return graph.transform_features_layer()(raw)


@pytest.mark.parametrize("name", LABELS)
def test_transform_scales_and_the_task_undoes_it(name, tmp_path):
    labels, task = LABELS[name], Regression(**ARGS)
    features = features_of(task, labels, tmp_path)
    z = features["y"].numpy().astype(float)
    expected = np.array(labels, float if isinstance(labels[0], int) else np.float32).astype(float)
    spread = expected.std() if len(set(labels)) > 1 else 1.0
    # float32 of the z-score, and some roundings of the mean in float64.
    tolerance = 1e-6 + 4 * np.finfo(float).eps * abs(expected.mean()) / spread
    np.testing.assert_allclose(z, (expected - expected.mean()) / spread, rtol=1e-5, atol=tolerance)
    fitted = task.fitted(features, {}.get)
    assert task.own_unit(z[:, None], z)[1] is z  # only a copy knows
    outputs, targets = fitted.own_unit(tf.constant(z[:, None]), tf.constant(z))
    # The deviation is float32, and the mean two of them.
    rounding = 1e-6 * spread + 1e-14 * abs(expected.mean())
    np.testing.assert_allclose(targets, expected, rtol=0, atol=rounding)
    np.testing.assert_allclose(outputs[:, 0], expected, rtol=0, atol=rounding)
    served = fitted.outputs(fitted.own_unit(tf.zeros([2, 1]), None)[0], "")["prediction"]
    assert served.dtype == (tf.float64 if name == "far" else tf.float32)
    rtol = 1e-14 if name == "far" else 1e-6
    np.testing.assert_allclose(served, expected.mean(), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("name", ["prices", "far", "huge"])
def test_metrics_are_in_the_label_s_unit_and_the_loss_is_not(name, tmp_path):
    settings = TrainingSettings(task=TaskSettings(name="regression", args=ARGS))
    features = features_of(settings.task.found, LABELS[name], tmp_path)
    objective = Objective(settings.fitted(features, {}.get))
    z = features["y"]
    outputs = (z + DRAW.normal(0, 0.1, 50).astype(np.float32))[:, tf.newaxis]
    batch = Batch({}, z, tf.ones(50))
    found = objective.evaluated(objective.evaluation(outputs, batch).numpy())
    error = (outputs[:, 0] - z).numpy().astype(float)
    labels = np.array(LABELS[name], float)
    assert found.loss == pytest.approx((error**2).mean(), rel=1e-5)
    assert found.values["mse"] == pytest.approx(labels.var() * (error**2).mean(), rel=1e-4)
    assert found.values["mae"] == pytest.approx(labels.std() * abs(error).mean(), rel=1e-4)
    assert found.values["r2"] == pytest.approx(1 - (error**2).mean(), rel=1e-3)


def test_none_leaves_the_label_alone(tmp_path):
    task = Regression(**ARGS, label_scale="none")
    features = features_of(task, LABELS["prices"], tmp_path)
    np.testing.assert_array_equal(features["y"], np.float32(LABELS["prices"]))
    assert set(features) == {"x", "y"} and task.fitted(features, {}.get) is task


def test_a_label_that_a_subclass_changes_is_scaled_after_that(tmp_path):
    features = features_of(Logarithm(**ARGS), LABELS["prices"], tmp_path)
    logs = np.log(np.float32(LABELS["prices"]))
    np.testing.assert_allclose(features["y"], (logs - logs.mean()) / logs.std(), atol=1e-4)


def test_what_the_data_says_is_no_setting():
    settings = TrainingSettings(task=TaskSettings(name="regression", args=ARGS))
    fitted = settings.fitted({"y_scaling": np.array([[5.0, 2.0]])}, {}.get)
    assert fitted.flat() == settings.flat()
    copied = fitted.model_copy(update={"parallel": settings.parallel})
    assert copied.task.found.own_unit(tf.ones([1, 1]), None)[0].numpy().item() == 7
    assert settings.task.found.own_unit(1, 2) == (1, 2)


@pytest.mark.parametrize(
    ("args", "setting"),
    [
        ({**ARGS, "label_scale": "log"}, "task.args.label_scale"),
        ({"features": {"y_scaling": "numeric"}, "label": "y"}, "task.args.label"),
    ],
)
def test_wrong_arguments_are_refused(args, setting):
    error = refusal(TaskSettings, {"name": "regression", "args": args})
    assert error.setting == setting


def test_a_loss_of_ratios_needs_the_label_s_unit():
    task = {"name": "regression", "args": ARGS}
    error = refusal(TrainingSettings, {"task": task, "train": {"loss": "poisson"}})
    assert (error.setting, error.value) == ("train.loss", "poisson")
    for loss in ("huber", "mae"):
        TrainingSettings.model_validate({"task": task, "train": {"loss": loss}})
    unscaled = {"name": "regression", "args": ARGS | {"label_scale": "none"}}
    TrainingSettings.model_validate({"task": unscaled, "train": {"loss": "poisson"}})
