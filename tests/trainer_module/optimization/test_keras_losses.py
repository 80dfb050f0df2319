import sys
import types
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.optimization.make_loss import check_loss, make_loss
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

MINE = sys.modules[__name__]
IMAGES, TABLE, SEGMENTATION, TEXT = (
    registries.task(name)
    for name in ("image_classification", "regression", "segmentation", "language_model")
)
DRAW = np.random.RandomState(0)
LOGITS = tf.constant(DRAW.randn(6, 5))
LABELS = tf.constant(DRAW.randint(0, 5, 6))
ONE_HOT = tf.one_hot(LABELS, 5, dtype=tf.float64)
NUMBERS = tf.constant(np.abs(DRAW.randn(6)), tf.float32)
ESTIMATES = tf.constant(np.abs(DRAW.randn(6, 1)))
PIXELS = tf.constant(DRAW.randn(3, 4, 4, 2))
MASKS = tf.constant(DRAW.randint(0, 2, (3, 4, 4)))


def losses(task: Any, outputs: Any, targets: Any, *, smoothed: bool = True, **train: Any) -> Any:
    settings = TrainSettings(**train)
    return make_loss(task, settings)(outputs, targets, tf.float64, smoothed)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Huber", "huber"),
        ("CategoricalFocalCrossentropy", "categorical_focal_crossentropy"),
        ("kl_divergence", "kl_divergence"),
        ("LogCosh", "log_cosh"),
        ("task", "task"),
    ],
)
def test_names_of_losses_in_any_case(given, name):
    assert TrainSettings(loss=given).loss == name


@pytest.mark.parametrize("name", [each for each in registries.LOSSES.names() if each != "task"])
def test_each_loss_of_keras_is_one_of_a_task(name):
    entry = registries.LOSSES.get(name)
    assert hasattr(keras.losses, entry.class_name)
    assert "y_true" not in entry._known


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("categorical_crossentropy", {}),
        ("categorical_focal_crossentropy", {"gamma": 1.5}),
        ("binary_crossentropy", {}),
        ("mean_squared_error", {}),
    ],
)
def test_of_classes_is_keras_s_of_logits_and_one_hot_labels(name, arguments):
    found = losses(IMAGES, LOGITS, LABELS, loss=name, loss_args=arguments)
    if name != "mean_squared_error":
        arguments = arguments | {"from_logits": True}
    each = getattr(keras.losses, name)(ONE_HOT, LOGITS, **arguments)
    assert found.dtype == tf.float64
    np.testing.assert_allclose(found, each, rtol=1e-12)


def test_cross_entropies_are_the_tasks_loss():
    for smoothing in (0.0, 0.1):
        train = {"loss": "categorical_crossentropy", "label_smoothing": smoothing}
        for smoothed in (True, False):
            found = losses(IMAGES, LOGITS, LABELS, smoothed=smoothed, **train)
            train_too = TrainSettings(label_smoothing=smoothing if smoothed else 0)
            expected = IMAGES.losses(LOGITS, LABELS, tf.float64, train_too)
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    sparse = losses(SEGMENTATION, PIXELS, MASKS, loss="sparse_categorical_crossentropy")
    np.testing.assert_allclose(
        sparse, SEGMENTATION.losses(PIXELS, MASKS, tf.float64, None), rtol=1e-12
    )


def test_padding_of_a_text_does_not_count():
    logits = tf.constant(DRAW.randn(2, 4, 5))
    tokens = tf.constant([[2, 3, 0, 0], [1, 2, 3, 4]])
    found = losses(TEXT, logits, tokens, loss="sparse_categorical_crossentropy")
    np.testing.assert_allclose(found, TEXT.losses(logits, tokens, tf.float64, None), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments"), [("huber", {"delta": 0.5}), ("log_cosh", {}), ("poisson", {})]
)
def test_of_a_number_is_keras_s(name, arguments):
    found = losses(TABLE, ESTIMATES, NUMBERS, loss=name, loss_args=arguments)
    labels = tf.cast(NUMBERS, tf.float64)[:, None]
    keras.config.set_floatx("float64")
    try:
        expected = getattr(keras.losses, name)(labels, ESTIMATES, **arguments)
    finally:
        keras.config.set_floatx("float32")
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_dice_of_an_example_takes_the_softmax():
    found = losses(SEGMENTATION, PIXELS, MASKS, loss="dice", loss_args={"axis": [1, 2, 3]})
    given = keras.losses.Dice(axis=(1, 2, 3), reduction=None, dtype="float64")
    expected = given(tf.one_hot(MASKS, 2, dtype=tf.float64), tf.nn.softmax(PIXELS))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"loss": "hubert"}, "train.loss", "huber"),
    ({"loss": "Circle"}, "train.loss", "one example"),
    ({"loss": "Loss"}, "train.loss", ""),
    ({"loss": {"a": 5}}, "train.loss", "mapping"),
    ({"loss": {"a": "task"}}, "train.loss", "mapping"),
    ({"loss_args": {"delta": 1}}, "train.loss_args", ""),
    ({"loss": "huber", "loss_args": {"delt": 1}}, "train.loss_args", "delta"),
    ({"loss": "huber", "loss_args": {"reduction": "sum"}}, "train.loss_args", "delta"),
    (
        {"loss": "categorical_crossentropy", "loss_args": {"label_smoothing": 0.1}},
        "train.loss_args",
        "train.label_smoothing",
    ),
    ({"loss": "huber", "label_smoothing": 0.1}, "train.label_smoothing", "0"),
    ({"loss": "mine.own:loss", "label_smoothing": 0.1}, "train.label_smoothing", "0"),
    ({"loss": {"a": "huber"}, "loss_args": {"delta": 1}}, "train.loss_args", "each output"),
    ({"loss": {"a": "huber"}, "loss_weights": {"b": 1}}, "train.loss_weights", "each output"),
    ({"loss": {"a": "huber"}, "loss_weights": {"a": "x"}}, "train.loss_weights", "number"),
    ({"loss": "huber", "loss_weights": {"a": 1}}, "train.loss_weights", "each output"),
]


@pytest.mark.parametrize(("train", "setting", "use"), REFUSED)
def test_refused_by_name(train, setting, use):
    error = refusal(TrainSettings, train)
    assert error.setting == setting
    assert use in error.suggestion


def squared(targets, outputs, factor=1.0):
    return factor * (outputs - targets) ** 2


class Squared(keras.losses.Loss):
    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor

    def call(self, targets, outputs):
        return squared(targets, outputs, self.factor)


SQUARED = Squared(2.0)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("squared", {"factor": 2}), ("Squared", {"factor": 2}), ("SQUARED", {})],
)
def test_a_users_loss_is_taken_per_example(name, arguments):
    train = {"loss": f"{__name__}:{name}", "loss_args": arguments}
    found = losses(TABLE, ESTIMATES, NUMBERS, **train)
    expected = 2 * (ESTIMATES[:, 0] - tf.cast(NUMBERS, tf.float64)) ** 2
    np.testing.assert_array_equal(found, expected)
    check_loss(TABLE, TrainSettings(**train), ESTIMATES, NUMBERS)
    assert f"{__name__}:{name}" in registries.code({"train_loss": train["loss"]})


def contrastive(targets, outputs):
    similar = tf.matmul(outputs, outputs, transpose_b=True)
    return -tf.linalg.diag_part(tf.nn.log_softmax(similar))


def scalar(targets, outputs):
    return tf.reduce_mean(outputs)


def failing(targets, outputs):
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("task", "loss", "arguments", "use"),
    [
        (IMAGES, "contrastive", {}, "one value for each example"),
        (IMAGES, "scalar", {}, "one value for each example"),
        (SEGMENTATION, "dice", {}, "train.loss_args: {axis: [1, 2, 3]}"),
        (IMAGES, "failing", {}, ""),
        (IMAGES, {"a": "huber"}, {}, "one loss"),
    ],
)
def test_a_loss_that_couples_examples_is_refused(task, loss, arguments, use):
    name = f"{__name__}:{loss}" if isinstance(loss, str) and hasattr(MINE, loss) else loss
    train = TrainSettings(loss=name, loss_args=arguments)
    data = (PIXELS, MASKS) if task is SEGMENTATION else (LOGITS, LABELS)
    with pytest.raises(SettingError) as caught:
        check_loss(task, train, *data)
    assert (caught.value.setting, caught.value.value) == ("train.loss", train.loss)
    assert use in caught.value.suggestion


@pytest.mark.parametrize(
    ("name", "arguments", "setting"),
    [
        ("squared", {"fctor": 2}, "train.loss"),
        ("Squared", {"fctor": 2}, "train.loss_args"),
        ("SQUARED", {"factor": 2}, "train.loss_args"),
        ("MINE", {}, "train.loss"),
        ("missing", {}, "train.loss"),
    ],
)
def test_a_users_loss_that_cannot_be_made(name, arguments, setting):
    train = TrainSettings(loss=f"{__name__}:{name}", loss_args=arguments)
    with pytest.raises(SettingError) as caught:
        check_loss(TABLE, train, ESTIMATES, NUMBERS)
    assert caught.value.setting == setting


def test_a_loss_for_each_output():
    given = {
        "loss": {"number": "Huber", "kind": "sparse_categorical_crossentropy"},
        "loss_args": {"number": {"delta": 0.5}},
        "loss_weights": {"kind": 0.25},
    }
    outputs = {"number": ESTIMATES, "kind": LOGITS}
    targets = {"number": NUMBERS, "kind": LABELS}
    found = losses(TABLE, outputs, targets, **given)
    huber = losses(TABLE, ESTIMATES, NUMBERS, loss="huber", loss_args={"delta": 0.5})
    entropy = IMAGES.losses(LOGITS, LABELS, tf.float64, None)
    np.testing.assert_allclose(found, huber + 0.25 * entropy, rtol=1e-12)
    check_loss(TABLE, TrainSettings(**given), outputs, targets)
    pairs = {"loss": {"0": "huber", "1": "mean_squared_error"}}
    pair = losses(TABLE, (ESTIMATES, ESTIMATES), (NUMBERS, NUMBERS), **pairs)
    assert pair.shape == [6]


@pytest.mark.parametrize("loss", ["huber", {"number": "huber", "kid": "huber"}])
def test_a_mapping_names_the_outputs_of_the_model(loss):
    outputs = {"number": ESTIMATES, "kind": LOGITS}
    with pytest.raises(SettingError) as caught:
        check_loss(TABLE, TrainSettings(loss=loss), outputs, dict.fromkeys(outputs, NUMBERS))
    assert "number, kind" in caught.value.suggestion


def test_they_travel_flat():
    train = {
        "loss": {"a": "Huber", "b": "mine:loss"},
        "loss_args": {"b": {"x": [1]}},
        "loss_weights": {"a": 2},
    }
    settings = TrainingSettings.model_validate({"train": train})
    flat = settings.flat()
    assert TrainingSettings.from_flat(flat) == settings
    assert settings.train.losses == {"a": ("huber", {}), "b": ("mine:loss", {"x": [1]})}
    assert "mine:loss" in registries.code(flat)


def test_the_check_of_a_training_reads_examples(make_fn_args, tmp_path, monkeypatch):
    from stagecraft.trainer_module.run_fn import run_fn

    module = types.ModuleType("losses_of_a_test")
    module.contrastive = contrastive  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "losses_of_a_test", module)
    with pytest.raises(SettingError) as caught:
        run_fn(make_fn_args(tmp_path, train_loss="losses_of_a_test:contrastive"))
    assert caught.value.setting == "train.loss"
