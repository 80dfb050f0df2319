import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings
from stagecraft.trainer_module.training import views

IMAGES = np.random.default_rng(0).normal(size=(3, 5, 7, 2)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(5 * 7 * 2, 4)).astype(np.float32)


def _logits(images: tf.Tensor) -> tf.Tensor:
    return tf.tanh(tf.reshape(images, [-1, 70]) @ WEIGHTS)


def _of(images: np.ndarray) -> np.ndarray:
    return np.asarray(_logits(tf.constant(images)))


def _mirrored(images: np.ndarray) -> np.ndarray:
    return (_of(images) + _of(images[:, :, ::-1])) / 2


def test_without_it_the_function_stays():
    assert views.averaged(_logits, None) is _logits


def test_flip_is_the_mean_of_both_views():
    found = views.averaged(_logits, "flip")(tf.constant(IMAGES))
    np.testing.assert_allclose(found, _mirrored(IMAGES), rtol=0, atol=2**-21)


def test_flip_translate_weighs_six_views_as_upstream():
    padded = np.pad(IMAGES, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")
    moved = [padded[:, :5, :7], padded[:, 2:, 2:]]
    translated = sum(map(_mirrored, moved)) / 2
    found = views.averaged(_logits, "flip_translate")(tf.constant(IMAGES))
    np.testing.assert_allclose(found, (_mirrored(IMAGES) + translated) / 2, rtol=0, atol=2**-20)


@pytest.mark.parametrize("kind", ["flip", "flip_translate"])
@pytest.mark.parametrize("shape", [(2, 1, 1, 1), (2, 1, 3, 1), (1, 2, 2, 3), (0, 4, 4, 3)])
def test_pictures_of_any_size(kind, shape):
    images = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    total = views.averaged(lambda x: tf.reduce_max(x, axis=[1, 2]), kind)
    assert total(tf.constant(images)).shape == (shape[0], shape[3])


@pytest.mark.parametrize(
    ("dtype", "expected"), [(tf.bfloat16, tf.float32), (tf.float64, tf.float64)]
)
def test_means_are_not_rounded_to_16_bits(dtype, expected):
    total = views.averaged(lambda x: tf.cast(_logits(x), dtype), "flip")
    assert total(tf.constant(IMAGES)).dtype == expected


@pytest.mark.parametrize("value", ["none", False, None, ""])
def test_none_is_no_value(value):
    assert TrainSettings(test_time_augment=value).test_time_augment is None
    assert "train_test_time_augment" not in TrainingSettings().flat()


@pytest.mark.parametrize("task", ["unet", "regression", "language_model"])
def test_other_tasks_are_refused(task, messages):
    train = {"test_time_augment": "flip", "augment": "none"}
    error = refusal(TrainingSettings, {"task": {"name": task}, "train": train})
    assert (error.setting, error.value) == ("train.test_time_augment", "flip")
    assert error.suggestion == "train.test_time_augment: none"
    messages.check(error)
