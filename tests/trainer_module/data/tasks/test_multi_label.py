import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.tasks.kinds.multi_label import MultiLabel
from stagecraft.trainer_module.settings import TrainSettings

COLUMNS = {"x": "numeric"}
DRAW = np.random.default_rng(0)
TARGETS = DRAW.integers(0, 2, (60, 3)).astype(np.float32)
LOGITS = (DRAW.standard_normal((60, 3)) + TARGETS).astype(np.float32)
WEIGHTS = DRAW.uniform(0, 2, 60)
NEWS = MultiLabel(COLUMNS, ["news", "sport", "science"])


def test_loss_and_metrics_are_keras_s():
    found = NEWS.losses(tf.constant(LOGITS), tf.constant(TARGETS), tf.float32, None)
    expected = keras.losses.BinaryCrossentropy(from_logits=True, reduction=None)(TARGETS, LOGITS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    smoothed = NEWS.losses(
        tf.constant(LOGITS), tf.constant(TARGETS), tf.float32, TrainSettings(label_smoothing=0.2)
    )
    smoothing = keras.losses.BinaryCrossentropy(True, label_smoothing=0.2, reduction=None)
    np.testing.assert_allclose(smoothed, smoothing(TARGETS, LOGITS), rtol=1e-5)
    values = {
        each.name: each.result(
            each.sums(
                tf.constant(LOGITS), tf.constant(TARGETS), tf.constant(WEIGHTS), tf.float64
            ).numpy()
        )
        for each in NEWS.metrics()
    }
    accuracy = keras.metrics.BinaryAccuracy(threshold=0.0)
    accuracy.update_state(TARGETS, LOGITS, WEIGHTS[:, None] * np.ones(3))
    assert values["accuracy"] == pytest.approx(float(accuracy.result()), rel=1e-5)
    f1 = keras.metrics.F1Score(average="micro", threshold=0.5)
    f1.update_state(TARGETS, tf.sigmoid(LOGITS), WEIGHTS)
    assert values["f1"] == pytest.approx(float(f1.result()), rel=1e-5)


def test_the_constant_has_the_frequency_of_each_label():
    constant = NEWS.constant()
    sums = constant.sums(tf.constant(TARGETS), tf.ones(60, tf.float64)).numpy()
    logits = constant.outputs(sums, tf.constant(TARGETS[:5]))
    expected = (TARGETS.sum(axis=0) + 1) / 62
    np.testing.assert_allclose(tf.sigmoid(logits), np.tile(expected, (5, 1)), rtol=1e-5)


def test_labels_in_columns_of_their_own():
    assert NEWS.schema_features == ("x", "news", "sport", "science")
    assert NEWS.features == ("x", "news + sport + science")
    raw = [tf.constant([[0], [1]]), tf.constant([1.0, 0.0]), tf.constant([1, 1])]
    assert NEWS.to_label(raw).numpy().tolist() == [[0, 1, 1], [1, 0, 1]]
    with pytest.raises(tf.errors.InvalidArgumentError):
        NEWS.to_label([*raw[:2], tf.constant([1, 2])])
    checks = NEWS.value_checks()
    settings = [("task.args.label", name) for name in ("news", "sport", "science")]
    assert [(each.setting, each.feature) for each in checks] == settings
    assert checks[0].accepts(tf.constant([0, 1, 2])).numpy().tolist() == [True, True, False]
    assert checks[0].accepts(tf.constant([1.0, 0.5])).numpy().tolist() == [True, False]


@pytest.mark.parametrize(
    ("given", "separator"),
    [
        (tf.ragged.constant([["b", "a"], [], ["b"]]), None),
        (tf.ragged.constant([["b", "a"], [], ["b"]]).to_sparse(), None),
        (tf.constant(["b ;a", "", "b;b"]), ";"),
    ],
)
def test_labels_in_one_feature(given, separator, monkeypatch):
    import tensorflow_transform as tft

    monkeypatch.setattr(tft, "make_and_track_object", lambda make, name: make())
    task = MultiLabel(COLUMNS, "tags", label_vocabulary=["a", "b"], separator=separator)
    assert task.to_label(given).numpy().tolist() == [[1, 1], [0, 0], [0, 1]]
    wrong = tf.constant(["c"]) if separator else tf.ragged.constant([["c"]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="the label tags "):
        task.to_label(wrong)
    [check] = task.value_checks()
    values = ["a;b", "a;c"] if separator else ["a", "c"]
    assert check.accepts(tf.constant(values)).numpy().tolist() == [True, False]
    assert task.list_features == ([] if separator else ["tags"])


def test_outputs_name_the_labels():
    found = NEWS.outputs(tf.constant([[3.0, -1.0, 0.5]]), "")
    assert found["predicted"].numpy().tolist() == [[1, 0, 1]]
    assert found["label_names"].numpy().tolist() == [[b"news", b"sport", b"science"]]


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ({"label": "tags"}, "label_vocabulary"),
        ({"label": "tags", "label_vocabulary": ["a", "a"]}, "label_vocabulary"),
        ({"label": ["a", "b"], "label_vocabulary": ["a"]}, "label_vocabulary"),
        ({"label": ["a", "a"]}, "label_vocabulary"),
        ({"label": ["a", "b"], "separator": ";"}, "separator"),
        ({"label": ["x", "b"]}, "label"),
    ],
)
def test_wrong_arguments(arguments, setting):
    with pytest.raises(SettingError) as caught:
        MultiLabel(COLUMNS, **arguments)
    assert caught.value.setting == f"task.args.{setting}"
