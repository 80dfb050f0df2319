import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal
from views_tasks import ONE_INPUT

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.tasks.task import Spec
from stagecraft.trainer_module.run_fn import run_fn
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings
from stagecraft.trainer_module.training import test_time_augmentation

IMAGES = np.random.default_rng(0).normal(size=(3, 5, 7, 2)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(5 * 7 * 2, 4)).astype(np.float32)


def _logits(images: tf.Tensor) -> tf.Tensor:
    return tf.tanh(tf.reshape(images, [-1, 70]) @ WEIGHTS)


def _of(images: np.ndarray) -> np.ndarray:
    return np.asarray(_logits(tf.constant(images)))


def _mirrored(images: np.ndarray) -> np.ndarray:
    return (_of(images) + _of(images[:, :, ::-1])) / 2


def test_without_it_the_function_stays():
    assert test_time_augmentation.averaged(_logits, None) is _logits


def test_flip_is_the_mean_of_both_views():
    found = test_time_augmentation.averaged(_logits, "flip")(tf.constant(IMAGES))
    np.testing.assert_allclose(found, _mirrored(IMAGES), rtol=0, atol=2**-21)


def test_flip_translate_weighs_six_views_as_upstream():
    padded = np.pad(IMAGES, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")
    moved = [padded[:, :5, :7], padded[:, 2:, 2:]]
    translated = sum(map(_mirrored, moved)) / 2
    found = test_time_augmentation.averaged(_logits, "flip_translate")(tf.constant(IMAGES))
    np.testing.assert_allclose(found, (_mirrored(IMAGES) + translated) / 2, rtol=0, atol=2**-20)


@pytest.mark.parametrize("kind", ["flip", "flip_translate"])
@pytest.mark.parametrize("shape", [(2, 1, 1, 1), (2, 1, 3, 1), (1, 2, 2, 3), (0, 4, 4, 3)])
def test_pictures_of_any_size(kind, shape):
    images = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    total = test_time_augmentation.averaged(lambda x: tf.reduce_max(x, axis=[1, 2]), kind)
    assert total(tf.constant(images)).shape == (shape[0], shape[3])


@pytest.mark.parametrize(
    ("dtype", "expected"), [(tf.bfloat16, tf.float32), (tf.float64, tf.float64)]
)
def test_means_are_not_rounded_to_16_bits(dtype, expected):
    total = test_time_augmentation.averaged(lambda x: tf.cast(_logits(x), dtype), "flip")
    assert total(tf.constant(IMAGES)).dtype == expected


@pytest.mark.parametrize("value", ["none", False, None, ""])
def test_none_is_no_value(value):
    assert TrainSettings(test_time_augment=value).test_time_augment is None
    assert "train_test_time_augment" not in TrainingSettings().flat()


@pytest.mark.parametrize("task", ["segmentation", "regression", "language_model"])
def test_other_tasks_are_refused(task):
    train = {"test_time_augment": "flip", "augment": "none"}
    error = refusal(TrainingSettings, {"task": {"name": task}, "train": train})
    assert (error.setting, error.value) == ("train.test_time_augment", "flip")
    assert error.suggestion == "train.test_time_augment: none"


@pytest.mark.parametrize(
    ("task", "model"), [("TWO_INPUTS", "two_inputs"), ("TWO_OUTPUTS", "two_outputs")]
)
def test_a_task_that_cannot_be_exported_so_is_refused_before_training(
    task, model, make_fn_args, tmp_path
):
    fn_args = make_fn_args(
        tmp_path,
        task_name=f"views_tasks:{task}",
        train_model=f"views_tasks:{model}",
        train_test_time_augment="flip",
        train_augment="none",
    )
    with pytest.raises(SettingError) as caught:
        run_fn(fn_args)
    error = caught.value
    assert (error.setting, error.value) == ("train.test_time_augment", "flip")
    assert error.suggestion == "train.test_time_augment: none"
    assert not (tmp_path / "checkpoints").exists()


def test_views_that_move_need_pictures_of_one_size():
    specs, outputs = Spec((None, None, 3)), tf.zeros([1, 4])
    test_time_augmentation.verify("flip", ONE_INPUT, specs, outputs)
    with pytest.raises(SettingError) as caught:
        test_time_augmentation.verify("flip_translate", ONE_INPUT, specs, outputs)
    assert caught.value.suggestion == "train.test_time_augment: flip"


def test_the_evaluator_measures_the_mean_of_the_views(make_fn_args, training_data, tmp_path):
    fn_args = make_fn_args(
        tmp_path,
        task_name="views_tasks:ONE_INPUT",
        train_model="views_tasks:one_output",
        train_test_time_augment="flip",
        train_augment="none",
        train_steps=2,
    )
    run_fn(fn_args)
    signatures = tf.saved_model.load(fn_args.serving_model_dir).signatures
    examples = tf.constant(training_data.serialized("eval"))
    logits = signatures["serving_default"](examples=examples)["logits"]
    labels = signatures["transform_features"](examples=examples)["label"]
    losses = signatures["evaluation"](examples=examples)["loss"]
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(labels, [-1]), logits)
    # Losses of about 2, of graphs whose logits may differ by a rounding of each of 3,072 terms.
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-4)
