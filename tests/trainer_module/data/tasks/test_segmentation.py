"""Segmentation: features, loss, augmentation and export."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from transformed import serialized, transformed

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen.kinds import masks
from stagecraft.schemas import features
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.kinds.segmentation import SEGMENTATION, Segmentation
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training.export import export

ROWS = 6


@pytest.fixture(scope="module")
def rows():
    found = []
    for record in masks.Sample(ROWS, 0)._examples():
        feature = tf.train.Example.FromString(record).features.feature
        row = {name: feature[name].bytes_list.value[0] for name in (features.IMAGE, features.MASK)}
        found.append(row | {features.ID: feature[features.ID].int64_list.value[0]})
    return found


@pytest.fixture(scope="module")
def graph(rows, tmp_path_factory):
    return transformed(
        SEGMENTATION, SEGMENTATION.schema_file, rows, tmp_path_factory.mktemp("masks")
    )


def _raw(rows):
    return {
        name: tf.constant([row[name] for row in rows]) for name in (features.IMAGE, features.MASK)
    }


def test_pictures_are_normalised_and_masks_are_classes(graph, rows):
    found = graph.transform_features_layer()(_raw(rows))
    batch = SEGMENTATION.batch(found, tf.ones([ROWS]))
    assert batch.inputs.shape == (ROWS, 32, 32, 3)
    assert (batch.targets.shape, batch.targets.dtype) == ((ROWS, 32, 32), tf.int64)
    np.testing.assert_allclose(np.mean(batch.inputs, (0, 1, 2)), 0, atol=1e-5)
    expected = np.frombuffer(rows[0][features.MASK], np.uint8).reshape(32, 32)
    np.testing.assert_array_equal(batch.targets[0], expected)


def test_a_class_that_the_schema_lacks_is_an_error(graph, rows):
    wrong = _raw(rows[:1]) | {features.MASK: tf.constant([b"\2" * 1024])}
    with pytest.raises(tf.errors.InvalidArgumentError):
        graph.transform_features_layer()(wrong)


def test_the_schemas_names_are_as_many_as_the_classes():
    with pytest.raises(UserError) as caught:
        Segmentation(num_classes=3).model_arguments(SEGMENTATION.schema_file)
    assert caught.value.setting == "task.args.num_classes"


def test_the_loss_is_the_mean_of_the_pixels(rows):
    draw = np.random.default_rng(0)
    logits, targets = draw.normal(size=(3, 4, 4, 2)), draw.integers(0, 2, (3, 4, 4))
    each = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    losses = SEGMENTATION.losses(tf.constant(logits), tf.constant(targets), tf.float64, None)
    np.testing.assert_allclose(losses, np.mean(each, (1, 2)), rtol=1e-12)


def test_picture_and_mask_move_together():
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 2, (5, 16, 16))
    images = np.repeat(targets[..., None], 3, axis=-1).astype(np.float32)
    batch = Batch(tf.constant(images), tf.constant(targets), tf.ones([5]))
    train = types.SimpleNamespace(seed=1, augment=("crop", "flip"))
    ids = {features.ID: tf.range(5, dtype=tf.int64)}
    moved = SEGMENTATION.augment(batch, ids, tf.zeros([5], tf.int64), train)
    assert moved.targets.dtype == tf.int64
    np.testing.assert_array_equal(moved.inputs[..., 0], tf.cast(moved.targets, tf.float32))
    assert (moved.targets != targets).numpy().any()


def test_cutout_leaves_the_mask():
    targets = tf.ones([5, 16, 16], tf.int64)
    batch = Batch(tf.ones([5, 16, 16, 3]), targets, tf.ones([5]))
    train = types.SimpleNamespace(seed=1, augment=("cutout",))
    ids = {features.ID: tf.range(5, dtype=tf.int64)}
    changed = SEGMENTATION.augment(batch, ids, tf.zeros([5], tf.int64), train)
    assert (changed.inputs == 0).numpy().any()
    np.testing.assert_array_equal(changed.targets, targets)


@pytest.mark.parametrize("shape", [(30, 32, 3), (32, 20, 1)])
def test_sides_must_be_divisible(shape):
    arguments = {"input_shape": shape, "num_classes": 2}
    with pytest.raises(SettingError) as caught:
        assemble(TrainSettings(model="unet_3"), arguments, task=SEGMENTATION)
    assert (caught.value.setting, caught.value.value) == ("train.model", "unet_3")


def test_a_classifier_is_refused():
    with pytest.raises(UserError, match="\\(3, 2\\)"):
        SEGMENTATION.check_outputs("nets:build", np.zeros((3, 2)), SEGMENTATION.sample_arguments)


def test_the_export_gives_masks(graph, rows, tmp_path):
    model = assemble(
        TrainSettings(model="unet_1"), SEGMENTATION.sample_arguments, task=SEGMENTATION
    )
    weights = {variable.path: variable.numpy() for variable in model.variables}
    export(tmp_path / "model", model, weights, graph, SEGMENTATION, SEGMENTATION.schema_file)
    loaded = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    examples = [serialized({features.IMAGE: row[features.IMAGE]}) for row in rows]
    found = loaded(examples=tf.constant(examples))
    inputs = graph.transform_features_layer()(_raw(rows))[features.IMAGE]
    np.testing.assert_array_equal(found["mask"], np.argmax(model(inputs), -1))
    assert found["probabilities"].shape == (ROWS, 32, 32, 2)


@pytest.mark.parametrize("number", [1, 2.5, "2"])
def test_a_number_of_classes_that_no_mask_has(number):
    with pytest.raises(SettingError) as caught:
        Segmentation(num_classes=number)
    assert caught.value.setting == "task.args.num_classes"
