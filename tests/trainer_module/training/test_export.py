import json
import os
import pathlib
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import warmups
from model_arguments import classes
from tensorflow.core.protobuf import saved_model_pb2

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.pusher import warmup
from stagecraft.schemas import features
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.tasks.kinds import image_classification
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training import assets, export as export_module
from stagecraft.trainer_module.training.export import check_keras_file, export

NAMES = ("airplane", "automobile", "bird", "cat")
SCHEMA = f"""
feature {{ name: "label" type: INT int_domain {{ min: 0 max: {len(NAMES) - 1} }} }}
string_domain {{ name: "label_names" {" ".join(f'value: "{name}"' for name in NAMES)} }}
"""
IMAGES = registries.TASKS.get("image_classification")

# Runs where neither this project nor TFX can be imported.
PLAIN = """
import json, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("stagecraft", "tensorflow_transform", "tfx", "tfx_bsl"):
            raise ImportError(name + " is not for plain TensorFlow")
sys.meta_path.insert(0, Blocker())
import numpy as np, tensorflow as tf
tf.config.set_soft_device_placement(False)
folder, inputs, out = sys.argv[1:]
given = np.load(inputs, allow_pickle=True)
signatures = tf.saved_model.load(folder).signatures
results = {
    name: signatures[name](**{argument: tf.constant(given[argument].tolist())
                              if argument == "examples" else given[argument]})
    for name, argument in (("serving_default", "examples"), ("serving_images", "images"),
                           ("transform_features", "examples"))
}
def plain(array):  # npz holds no Python objects
    return array.astype(np.bytes_) if array.dtype == object else array
np.savez(out, **{f"{name}/{key}": plain(value.numpy()) for name, parts in results.items()
                 for key, value in parts.items()})
print(json.dumps(sorted(signatures)))
"""


class Exported:
    """A model with random weights, exported; and what it must give."""

    def __init__(self, folder: pathlib.Path, data: Any):
        self.folder = folder / "model"
        self.transform = tft.TFTransformOutput(str(data.transform_graph))
        self.model = assemble(TrainSettings(model="user_models:tiny"), classes(len(NAMES)))
        self.schema = folder / "schema.pbtxt"
        self.schema.write_text(SCHEMA)
        draw = np.random.RandomState(0)
        self.weights = {
            # Uniform above 0: some of these are variances.
            variable.path: draw.uniform(0.1, 0.9, variable.shape).astype(variable.dtype)
            for variable in self.model.variables
        }
        self.export(self.folder)
        self.serialized = data.serialized("eval")
        parsed = tf.io.parse_example(self.serialized, self.transform.raw_feature_spec())
        raw = tf.reshape(tf.io.decode_raw(parsed[features.IMAGE], tf.uint8), [-1, 32, 32, 3])
        self.images = raw.numpy()
        self.labels = parsed[features.LABEL].numpy()

    def export(self, folder: pathlib.Path, **options: Any) -> None:
        schema = str(self.schema)
        export(folder, self.model, self.weights, self.transform, IMAGES, schema, **options)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, training_data: Any) -> Exported:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(pathlib.Path(__file__).parents[1]))
        return Exported(tmp_path_factory.mktemp("exported"), training_data)


def _without_label(serialized: bytes) -> bytes:
    example = tf.train.Example.FromString(serialized)
    del example.features.feature[features.LABEL]
    del example.features.feature[features.ID]
    return example.SerializeToString()


def test_warm_up_requests_of_pictures(exported, tmp_path):
    """In the form of each signature; the export itself has none."""
    found = warmup.requests(str(exported.folder), exported.serialized[:2])
    assert not (exported.folder / warmup.FILE).exists()
    served = tmp_path / "served"
    shutil.copytree(exported.folder, served)
    (served / warmup.FILE).write_bytes(found)
    signatures = {"serving_default", "serving_images", "serving_transformed"}
    assert warmups.answered(served) == dict.fromkeys(signatures, 2)
    images = [
        tf.make_ndarray(request.inputs["images"])
        for request in warmups.requests(served / warmup.FILE)
        if request.model_spec.signature_name == "serving_images"
    ]
    np.testing.assert_array_equal(np.concatenate(images), exported.images[:2])


@pytest.mark.slow
def test_gives_the_same_in_plain_tensorflow(exported, tmp_path):
    given = {"examples": np.array(exported.serialized, dtype=object), "images": exported.images}
    np.savez(tmp_path / "given.npz", **given)
    command = [exported.folder, tmp_path / "given.npz", tmp_path / "results.npz"]
    run = subprocess.run(
        [sys.executable, "-I", "-c", PLAIN, *command], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
    signatures = ["serving_default", "serving_images", "serving_transformed", "transform_features"]
    assert json.loads(run.stdout.splitlines()[-1]) == signatures
    results = np.load(tmp_path / "results.npz")

    layer = exported.transform.transform_features_layer()
    parsed = tf.io.parse_example(exported.serialized, exported.transform.raw_feature_spec())
    transformed = layer(parsed)
    for name, value in transformed.items():
        np.testing.assert_array_equal(results[f"transform_features/{name}"], value)
    np.testing.assert_array_equal(results["transform_features/label"], exported.labels)

    for variable in exported.model.variables:
        np.testing.assert_array_equal(variable.numpy(), exported.weights[variable.path])
    logits = exported.model(transformed[features.IMAGE], training=False)
    for signature in ("serving_default", "serving_images"):
        keys = ("logits", "probabilities", "class_id", "class_name")
        found = {key: results[f"{signature}/{key}"] for key in keys}
        assert found["logits"].dtype == np.float32
        # Eager and graph kernels may differ by a rounding of each of the sums' terms.
        np.testing.assert_allclose(found["logits"], logits, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1, rtol=1e-6)
        assert found["class_id"].dtype == np.int64
        np.testing.assert_array_equal(found["class_id"], found["logits"].argmax(axis=1))
        named = [NAMES.index(name.decode()) for name in found["class_name"]]
        assert named == list(found["class_id"])
    np.testing.assert_array_equal(
        results["serving_default/logits"], results["serving_images/logits"]
    )


def test_a_request_needs_no_label(exported):
    serving = tf.saved_model.load(str(exported.folder)).signatures["serving_default"]
    bare = [_without_label(serialized) for serialized in exported.serialized]
    np.testing.assert_array_equal(
        serving(examples=tf.constant(bare))["logits"],
        serving(examples=tf.constant(exported.serialized))["logits"],
    )


def test_can_average_the_logits_of_views(exported, tmp_path):
    exported.export(tmp_path / "model", test_time_augment="flip")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    one = tf.saved_model.load(str(exported.folder)).signatures["serving_images"]
    images = exported.images
    expected = (one(images=images)["logits"] + one(images=images[:, :, ::-1])["logits"]) / 2
    found = signatures["serving_images"](images=images)
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-5, atol=1e-5)
    assert (np.abs(found["logits"] - one(images=images)["logits"]) > 1e-3).any()
    examples = signatures["serving_default"](examples=tf.constant(exported.serialized))
    np.testing.assert_array_equal(examples["logits"], found["logits"])


def test_names_no_device(exported):
    saved = saved_model_pb2.SavedModel.FromString((exported.folder / "saved_model.pb").read_bytes())
    devices = set()
    for graph in saved.meta_graphs:
        devices |= {node.device for node in graph.graph_def.node}
        for function in graph.graph_def.library.function:
            devices |= {node.device for node in function.node_def}
        devices |= {node.variable.device for node in graph.object_graph_def.nodes}
    assert devices <= {"", "*", "/device:CPU:*", "/device:CPU:0"}, devices


def test_leaves_nothing_when_it_fails(exported, tmp_path, monkeypatch):
    def fill_the_disk(_: Any, folder: str, **__: Any) -> None:
        pathlib.Path(folder, "half").write_text("written")
        raise tf.errors.ResourceExhaustedError(None, None, f"{folder}/x; No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fill_the_disk)
    with pytest.raises(UserError, match="disk is full"):
        exported.export(tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_tells_any_bytes_apart(exported):
    every = np.arange(256 * 12, dtype=np.uint8).reshape(1, 32, 32, 3)
    images = np.concatenate([every, 255 - every])
    to_bytes: Callable[[Any], tf.Tensor] = image_classification._to_bytes
    assert to_bytes(tf.constant(images)).numpy().tolist() == [image.tobytes() for image in images]


def test_each_weight_is_stored_once(exported):
    stored = tf.train.list_variables(str(exported.folder / "variables" / "variables"))
    shapes = sorted(tuple(shape) for name, shape in stored if "VARIABLE_VALUE" in name)
    assert shapes == sorted(tuple(variable.shape) for variable in exported.model.variables)


def test_a_model_with_a_table(exported, training_data, tmp_path):
    """Which is no variable of Keras's."""
    model = keras.Sequential(
        [
            keras.layers.Input(features.IMAGE_SHAPE),
            keras.layers.Lambda(lambda images: keras.ops.cast(images[:, 0, 0], "int64")),
            keras.layers.IntegerLookup(vocabulary=[0, 1, 2], output_mode="multi_hot"),
            keras.layers.Dense(len(NAMES), name="dense"),
        ]
    )
    weights = {variable.path: variable.numpy() for variable in model.variables}
    transform = tft.TFTransformOutput(str(training_data.transform_graph))
    export(tmp_path / "model", model, weights, transform, IMAGES, str(exported.schema))
    loaded = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_images"]
    assert loaded(images=tf.zeros([2, *features.IMAGE_SHAPE], tf.uint8))["logits"].shape == (2, 4)


def test_also_as_a_keras_file(exported, tmp_path):
    for name in ("one", "other"):
        exported.export(tmp_path / name, with_keras=True)
    path = tmp_path / "one" / assets.KERAS
    loaded = keras.saving.load_model(path, compile=False)
    images = np.random.default_rng(0).normal(size=(2, *features.IMAGE_SHAPE))
    np.testing.assert_array_equal(loaded(images), exported.model(images))
    # The Pusher takes two exports of one model for the same.
    assert path.read_bytes() == (tmp_path / "other" / assets.KERAS).read_bytes()
    assert not (exported.folder / assets.KERAS).exists()


class Scaled(keras.layers.Layer):
    """A layer that Keras cannot make again: it has no ``get_config``."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def call(self, inputs: Any) -> Any:
        return inputs * self.factor


@pytest.mark.parametrize(
    "layer", [lambda: Scaled(2.0), lambda: keras.layers.Lambda(lambda x: 2 * x)]
)
def test_a_model_that_keras_cannot_load_back_is_refused(layer):
    model = keras.Sequential([keras.Input([2]), layer(), keras.layers.Dense(1)])
    with pytest.raises(SettingError) as refused:
        check_keras_file(model)
    assert refused.value.setting == "train.export_keras"
    assert "register_keras_serializable" in refused.value.suggestion
    assert "\n" not in str(refused.value)
    check_keras_file(keras.Sequential([keras.Input([2]), keras.layers.Dense(1)]))


def test_samples_are_beside_the_model(exported, tmp_path, monkeypatch):
    assert not (exported.folder / assets.SAMPLES).exists()
    monkeypatch.setattr(type(IMAGES), "samples", lambda *_: {"an input": "an output"})
    exported.export(tmp_path / "model")
    assert json.loads((tmp_path / "model" / assets.SAMPLES).read_text()) == {
        "an input": "an output"
    }


@pytest.mark.parametrize(
    ("inputs", "is_there"),
    [
        (lambda x: {"a": {"b": x}, "c": x}, True),
        (lambda x: {"a": {"b": x}, "a_b": x}, False),
        (lambda x: {"a": tf.sparse.from_dense(x)}, False),
        (lambda x: {"a": tf.RaggedTensor.from_tensor(x)}, False),
        (lambda x: {"a": tf.as_string(x)}, False),
    ],
)
def test_inputs_that_numbers_can_name(inputs, is_there):
    served = types.SimpleNamespace(transform=lambda raw: tf.ones([3, 2]), raw_spec={})
    task = types.SimpleNamespace(
        parse_request=lambda examples, spec: examples,
        batch=lambda features, weights: types.SimpleNamespace(inputs=inputs(features)),
    )
    found = export_module._of_numbers(served, task)
    assert ("serving_transformed" in found) is is_there
