"""Pictures of any size and channel count, as raw values and as encoded files."""

import numpy as np
import pytest
import tensorflow as tf
from transformed import serialized, transformed

from stagecraft.common.errors import SettingError, UserError
from stagecraft.schemas import features
from stagecraft.trainer_module import preprocessing
from stagecraft.trainer_module.data import schema_reader
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.kinds.image_classification import (
    IMAGE_CLASSIFICATION,
    ImageClassification,
)
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings
from stagecraft.trainer_module.training.export import export

COUNT = 9
SCHEMA = """
feature {{
  name: "image" type: BYTES presence {{ min_fraction: 1.0 }} shape {{}} {domain}
  annotation {{ tag: "image_shape={shape}" }}
}}
feature {{
  name: "label" type: INT presence {{ min_fraction: 1.0 }} shape {{}}
  int_domain {{ min: 0 max: 2 }}
}}
feature {{ name: "id" type: INT presence {{ min_fraction: 1.0 }} shape {{}} }}
"""


class Data:
    """Pictures of one shape, with their schema and Transform's graph."""

    def __init__(self, folder, shape, encoded):
        self.shape, self.encoded = shape, encoded
        self.schema = folder / "schema.pbtxt"
        domain = "image_domain {}" if encoded else ""
        tag = "x".join(map(str, shape))
        self.schema.write_text(SCHEMA.format(domain=domain, shape=tag))
        self.images = np.random.default_rng(0).integers(0, 256, (COUNT, *shape), np.uint8)
        self.rows = [
            {features.IMAGE: self.bytes_of(image), features.LABEL: index % 3, features.ID: index}
            for index, image in enumerate(self.images)
        ]
        self.graph = transformed(IMAGE_CLASSIFICATION, self.schema, self.rows, folder)
        self.arguments = IMAGE_CLASSIFICATION.model_arguments(str(self.schema))

    def bytes_of(self, image):
        return tf.io.encode_png(image).numpy() if self.encoded else image.tobytes()


@pytest.fixture(
    scope="module",
    params=[((28, 28, 1), False), ((64, 64, 3), True)],
    ids=["28x28x1", "64x64x3 as PNG"],
)
def data(request, tmp_path_factory):
    return Data(tmp_path_factory.mktemp("pictures"), *request.param)


def test_the_schema_has_the_models_arguments(data):
    assert data.arguments == {"input_shape": data.shape, "num_classes": 3}
    assert schema_reader.picture(str(data.schema)) == schema_reader.Picture(
        data.shape, data.encoded
    )
    assert str(list(data.shape)) in IMAGE_CLASSIFICATION.input_text(str(data.schema))


NAMED = (
    SCHEMA.format(domain="", shape="8x8x1")
    + """
string_domain { name: "label_names" value: "cat" value: "dog" value: "owl" }
"""
)


@pytest.mark.parametrize(
    ("given", "expected"), [({"dog": 3, "owl": 0.5}, [1, 3, 0.5]), ([2, 1, 0], [2, 1, 0])]
)
def test_class_weights_by_name_or_number(given, expected, tmp_path):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(NAMED)
    settings = TrainingSettings.model_validate({"task": {"args": {"class_weights": given}}})
    resolved = settings.resolved(str(schema))
    assert resolved.task.args == {"class_weights": expected}
    objective = Objective(TrainingSettings.from_flat(resolved.flat()))
    logits, labels = tf.constant([[1.0, 2, 3]] * 3), tf.constant([0, 1, 2], tf.int64)
    batch = Batch(None, labels, tf.ones([3]))
    losses = IMAGE_CLASSIFICATION.losses(logits, labels, tf.float32, None)
    np.testing.assert_allclose(
        objective.loss(logits, batch),
        tf.tensordot(losses, tf.constant(expected, tf.float32), 1),
        rtol=1e-6,
    )
    assert objective.evaluation(logits, batch)[0] == tf.reduce_sum(losses)


@pytest.mark.parametrize(
    ("given", "use"),
    [
        ({"kat": 2}, "cat, dog, owl"),
        ([1, 2], "3 weights"),
        ([1, -1, 2], "[1, 3]"),
        ({"cat": "x"}, "[1, 3]"),
        (5, "[1, 3]"),
    ],
)
def test_class_weights_that_do_not_fit(given, use, tmp_path):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(NAMED)
    with pytest.raises(SettingError) as caught:
        ImageClassification(given).model_arguments(str(schema))
    assert (caught.value.setting, caught.value.value) == ("task.args.class_weights", given)
    assert use in caught.value.suggestion


def test_channels_are_normalised(data):
    raw = {features.IMAGE: tf.constant([row[features.IMAGE] for row in data.rows])}
    found = data.graph.transform_features_layer()(raw)[features.IMAGE]
    pixels = data.images.astype(np.float64)
    expected = (pixels - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_another_size_is_an_error(data):
    height, width, channels = data.shape
    image = np.zeros((width // 2, height * 2 + 2, channels), np.uint8)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        data.graph.transform_features_layer()({features.IMAGE: [data.bytes_of(image)]})


def test_the_export_serves_images(data, tmp_path):
    model = assemble(TrainSettings(model="cnn"), data.arguments, task=IMAGE_CLASSIFICATION)
    weights = {variable.path: variable.numpy() for variable in model.variables}
    export(tmp_path / "model", model, weights, data.graph, IMAGE_CLASSIFICATION, str(data.schema))
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    by_images = signatures["serving_images"](images=tf.constant(data.images))
    examples = [serialized({features.IMAGE: row[features.IMAGE]}) for row in data.rows]
    by_examples = signatures["serving_default"](examples=tf.constant(examples))
    for name, value in by_images.items():
        np.testing.assert_array_equal(value, by_examples[name])
    assert by_images["logits"].shape == (COUNT, 3)


@pytest.mark.slow
def test_pictures_of_16_bits_and_several_sizes(tmp_path):
    """Files and decoded pictures give the same answers, from all bits."""
    schema = tmp_path / "schema.pbtxt"
    tags = '8x10x1" tag: "image_fit=pad" tag: "image_bits=16'
    schema.write_text(SCHEMA.format(domain="image_domain {}", shape=tags))
    images = np.random.default_rng(0).integers(0, 4096, (COUNT, 8, 10, 1)).astype(np.uint16)
    files = [tf.io.encode_png(image).numpy() for image in images]
    files[0] = tf.io.encode_png(np.repeat(np.repeat(images[0], 2, 0), 2, 1)).numpy()
    rows = [
        {features.IMAGE: file, features.LABEL: index % 3, features.ID: index}
        for index, file in enumerate(files)
    ]
    graph = transformed(IMAGE_CLASSIFICATION, schema, rows, tmp_path)
    raw = {features.IMAGE: tf.constant(files)}
    found = graph.transform_features_layer()(raw)[features.IMAGE].numpy()
    config = schema_reader.picture(str(schema)).config()
    pixels = preprocessing.decode(raw[features.IMAGE], config).numpy().astype(np.float64)
    np.testing.assert_array_equal(pixels[1:], images[1:])
    expected = (pixels - pixels.mean()) / pixels.std()
    np.testing.assert_allclose(found, expected, rtol=0, atol=16 / pixels.std())
    assert len(np.unique(found)) > 256

    arguments = IMAGE_CLASSIFICATION.model_arguments(str(schema))
    model = assemble(TrainSettings(model="cnn"), arguments, task=IMAGE_CLASSIFICATION)
    weights = {variable.path: variable.numpy() for variable in model.variables}
    export(tmp_path / "model", model, weights, graph, IMAGE_CLASSIFICATION, str(schema))
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    by_images = signatures["serving_images"](images=tf.constant(images))
    by_files = signatures["serving_files"](files=tf.constant(files))
    logits = model(found, training=False)
    np.testing.assert_allclose(by_files["logits"], logits, rtol=0, atol=1e-5)
    # The enlarged picture is smoothed on its way back.
    np.testing.assert_allclose(by_images["logits"][1:], by_files["logits"][1:], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("domain", "tag"),
    [
        ("image_domain {}", "image_fit=zoom"),
        ("image_domain {}", "image_bits=12"),
        ("", "image_fit=crop"),
        ("", "image_bits=16"),
    ],
)
def test_tags_that_are_refused(domain, tag, tmp_path):
    path = tmp_path / "schema.pbtxt"
    path.write_text(SCHEMA.format(shape=f'8x8x3" tag: "{tag}', domain=domain))
    with pytest.raises(UserError) as caught:
        schema_reader.picture(str(path))
    assert (caught.value.record, caught.value.value) == (features.IMAGE, tag)


def test_jpeg_is_decoded():
    image = np.full((8, 6, 3), 77, np.uint8)
    encoded = tf.io.encode_jpeg(image, quality=100)
    found = preprocessing.decode(
        tf.stack([encoded, encoded]), {"image_shape": [8, 6, 3], "image_encoded": True}
    )
    np.testing.assert_array_equal(found, [image, image])


@pytest.mark.parametrize(("shape", "domain"), [("32x32", ""), ("8x8x2", "image_domain {}")])
def test_shapes_that_are_refused(shape, domain, tmp_path):
    path = tmp_path / "schema.pbtxt"
    path.write_text(SCHEMA.format(shape=shape, domain=domain))
    with pytest.raises(UserError) as caught:
        schema_reader.picture(str(path))
    assert caught.value.value == f"image_shape={shape}"
