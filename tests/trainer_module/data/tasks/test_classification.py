"""One of several classes from a table."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.kinds.classification import Classification
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.models import build_model
from stagecraft.trainer_module.settings import TaskSettings, TrainingSettings, TrainSettings

DRAW = np.random.default_rng(3)
LOGITS = DRAW.standard_normal((40, 3)).astype(np.float32)
LABELS = DRAW.integers(0, 3, 40)
WEIGHTS = DRAW.uniform(0, 2, 40).astype(np.float32)
FEATURES = {"x": "numeric", "c": {"kind": "hashed", "buckets": 4}}


def task(**arguments):
    return Classification(FEATURES, "y", **{"num_classes": 3, **arguments})


def test_loss_and_accuracy_are_keras_s():
    settings = {"task": {"name": "classification", "args": {"features": FEATURES, "label": "y"}}}
    settings["task"]["args"]["num_classes"] = 3
    objective = Objective(TrainingSettings.model_validate(settings))
    batch = Batch(None, tf.constant(LABELS), tf.constant(WEIGHTS))
    found = objective.evaluated(objective.evaluation(tf.constant(LOGITS), batch).numpy())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    losses = np.asarray(loss(LABELS, LOGITS))
    # float32 sums of 40 terms.
    assert found.loss == pytest.approx(np.average(losses, weights=WEIGHTS), rel=40 * 2**-24)
    right = LOGITS.argmax(axis=1) == LABELS
    assert found.values["accuracy"] == pytest.approx(
        np.average(right, weights=WEIGHTS), rel=40 * 2**-24
    )


@pytest.mark.parametrize("weights", [[1, 0, 5], np.array([1, 0, 5], np.float32)])
def test_class_weights_and_smoothing(weights):
    weighted = task(class_weights=weights).training_weights(tf.constant([0, 1, 2]), tf.float32)
    assert weighted.numpy().tolist() == [1, 0, 5]
    train = TrainSettings(label_smoothing=0.3)
    found = task().losses(tf.constant(LOGITS), tf.constant(LABELS), tf.float64, train)
    smooth = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.3, reduction="none"
    )
    expected = smooth(np.eye(3)[LABELS], LOGITS.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("raw", [["no", "yes", "maybe"], [7, 3, 5]])
def test_labels_of_a_vocabulary(raw, tmp_path):
    found = task(label_vocabulary=raw).outputs(tf.constant(LOGITS[:5]), "")
    expected = [str(raw[place]) for place in LOGITS[:5].argmax(axis=1)]
    assert [name.decode() for name in found["class_name"].numpy()] == expected


@pytest.mark.parametrize("label", [3, -1, 0.5])
def test_a_label_that_is_no_class_is_an_error(label):
    assert task().to_label(tf.constant([2.0, 0.0])).numpy().tolist() == [2, 0]
    with pytest.raises(tf.errors.InvalidArgumentError):
        task().to_label(tf.constant([label]))


@pytest.mark.parametrize("model", ["linear", "dnn_8", "wide_deep_8"])
def test_the_families_of_tables_give_a_logit_for_each_class(model):
    arguments = task().sample_arguments
    built = build_model.build(model, arguments, task())
    inputs, _ = task().noise(arguments, 5, np.random.default_rng(0))
    assert built(inputs).shape == (5, 3)


@pytest.mark.parametrize(
    ("args", "setting"),
    [
        ({"class_weights": [1, "2"]}, "task.args.class_weights"),
        ({"class_weights": {"a": -1}}, "task.args.class_weights"),
        ({"num_classes": 1}, "task.args.num_classes"),
        ({"num_classes": 3, "label_vocabulary": ["a", "b"]}, "task.args.label_vocabulary"),
        ({"label_vocabulary": ["a", "b", "a"]}, "task.args.label_vocabulary"),
        ({"num_classes": 3, "class_weights": [1, 2]}, "task.args.class_weights"),
        ({"num_classes": 2, "class_weights": [1, -2]}, "task.args.class_weights"),
    ],
)
def test_wrong_arguments_are_refused(args, setting):
    given = {"features": FEATURES, "label": "y", **args}
    error = refusal(TaskSettings, {"name": "classification", "args": given})
    assert error.setting == setting
