"""Examples for ``stagecraft parity``."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.kinds.text import sentences
from stagecraft.pipeline.local import parity_data
from stagecraft.pipeline.settings import DataSettings, PipelineSettings


def test_pictures_are_normalized(tmp_path):
    parity_data.save_images(DataSettings(), 24, tmp_path / "data.npz", 10)
    with np.load(tmp_path / "data.npz") as data:
        images, labels = data["inputs"], data["targets"]
    assert (images.shape, images.dtype) == ((192, 32, 32, 3), np.float32)
    assert (labels.shape, labels.dtype) == ((192,), np.int64)
    assert set(labels) <= set(range(10))
    # Each number was rounded to float32: by 2**-24 = 6e-8 of itself, and the largest is below 4.
    images = images.astype(np.float64)
    np.testing.assert_allclose(images.mean((0, 1, 2)), 0, atol=2.4e-7)
    np.testing.assert_allclose(images.std((0, 1, 2)), 1, atol=2.4e-7)


@pytest.mark.slow
def test_pictures_come_from_an_archive(cifar10_small, tmp_path):
    archive = DataSettings(source=str(cifar10_small / "cifar-10-binary.tar.gz"))
    parity_data.save_images(archive, 16, tmp_path / "data.npz", 10)
    assert (tmp_path / "data.npz").exists()
    with pytest.raises(UserError):
        parity_data.save_images(DataSettings(source="/none"), 16, tmp_path / "data.npz", 10)


def test_a_label_that_the_schema_does_not_have(tmp_path):
    path = tmp_path / "data.npz"
    with pytest.raises(UserError) as caught:
        parity_data.save_images(DataSettings(), 24, path, 7)
    assert (caught.value.setting, caught.value.value) == ("data.schema_file", 9)
    assert not path.exists()


@pytest.mark.full
def test_examples_of_any_example_gen(tmp_path):
    text = " ".join(itertools.islice(sentences(), 300))
    with tf.io.TFRecordWriter(str(tmp_path / "windows")) as writer:
        for number in range(60):
            values = {
                "text": tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[text[number : number + 13].encode()])
                ),
                "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
            }
            features = tf.train.Features(feature=values)
            writer.write(tf.train.Example(features=features).SerializeToString())
    settings = PipelineSettings.model_validate(
        {
            "task": {"name": "language_model", "args": {"length": 12}},
            "data": {
                "example_gen": "tfx.components.ImportExampleGen",
                "source": str(tmp_path / "windows"),
            },
            "train": {"model": "transformer_1_16_2", "augment": "none"},
        }
    )
    path = tmp_path / "data.npz"
    parity_data.save(settings, 4, path, settings.task.found.sample_arguments)
    with np.load(path) as data:
        tokens, following = data["inputs"], data["targets"]
    assert tokens.shape == following.shape == (32, 12)
    np.testing.assert_array_equal(tokens[:, 1:], following[:, :-1])
    assert tokens.min() > 1, "each character is in the vocabulary"


ENCODER = """
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.kinds.image_classification import ImageClassification


class Encoder(ImageClassification):
    sample_arguments = {"input_shape": (32, 32, 3)}

    def batch(self, features, weights):
        return Batch(features["image"], features["image"], weights)


ENCODER = Encoder()
"""


@pytest.mark.slow
def test_a_task_of_a_user_on_pictures_of_cifar(tmp_path, monkeypatch):
    (tmp_path / "encoder_of_a_test.py").write_text(ENCODER)
    monkeypatch.syspath_prepend(tmp_path)
    settings = PipelineSettings.model_validate(
        {"task": {"name": "encoder_of_a_test:ENCODER"}, "data": {"sample_train": 40}}
    )
    path = tmp_path / "data.npz"
    parity_data.save(settings, 4, path, settings.task.found.sample_arguments)
    with np.load(path) as data:
        np.testing.assert_array_equal(data["inputs"], data["targets"])
