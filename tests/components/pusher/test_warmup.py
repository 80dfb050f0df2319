"""Warm-up requests in the form of each signature."""

import math
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import warmups
from tfx.types import standard_artifacts

from stagecraft.components.pusher import warmup

TEXT = tf.TensorSpec([None], tf.string)
PIXELS = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)


def feature(value: Any) -> tf.train.Feature:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def example(**values: Any) -> bytes:
    features = {name: feature(value) for name, value in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


EXAMPLES = [
    example(area=1.5, rooms=[3, 4], town=b"Bonn", image=PIXELS.tobytes()),
    example(area=2.5, rooms=[5], image=tf.io.encode_png(PIXELS).numpy()),
]


def saved(folder: pathlib.Path, **signatures: tuple[Any, dict[str, tf.TensorSpec]]) -> str:
    """A SavedModel with these signatures: functions, and the specs of their arguments."""
    traced = {
        name: tf.function(function, autograph=False).get_concrete_function(
            **{key: tf.TensorSpec(spec.shape, spec.dtype, key) for key, spec in specs.items()}
        )
        for name, (function, specs) in signatures.items()
    }
    tf.saved_model.save(tf.Module(), str(folder), signatures=traced)
    return str(folder)


def sent(folder: pathlib.Path, model: str) -> dict[str, list[dict[str, Any]]]:
    """The inputs of each request, by signature."""
    path = folder / "requests"
    path.write_bytes(warmup.requests(model, EXAMPLES))
    found: dict[str, list[dict[str, Any]]] = {}
    for request in warmups.requests(path):
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        found.setdefault(request.model_spec.signature_name, []).append(inputs)
    return found


def test_each_signature(tmp_path):
    columns = {
        "area": tf.TensorSpec([None], tf.float32),
        "rooms": tf.TensorSpec([None, None], tf.int64),
        "town": TEXT,
    }
    prompts = {
        "prompts": TEXT,
        "temperature": tf.TensorSpec([], tf.float32),
        "seed": tf.TensorSpec([], tf.int64),
    }

    def transform_features(examples):
        spec = {"area": tf.io.FixedLenFeature([], tf.float32)}
        area = tf.io.parse_example(examples, spec)["area"]
        return {"area_scaled": area / 10, "label": tf.ones_like(area, tf.int64)}

    model = saved(
        tmp_path / "model",
        serving_default=(lambda examples: {"n": tf.strings.length(examples)}, {"examples": TEXT}),
        serving_columns=(lambda area, rooms, town: {"area": area, "n": rooms}, columns),
        serving_files=(lambda files: {"n": tf.strings.length(files)}, {"files": TEXT}),
        serving_images=(
            lambda images: {"sum": tf.reduce_sum(images)},
            {"images": tf.TensorSpec([None, 2, 2, 3], tf.uint8)},
        ),
        continue_text=(lambda prompts, temperature, seed: {"text": prompts}, prompts),
        serving_transformed=(
            lambda inputs: {"twice": 2 * inputs},
            {"inputs": tf.TensorSpec([None], tf.float32)},
        ),
        by_name=(
            lambda area_scaled: {"twice": 2 * area_scaled},
            {"area_scaled": tf.TensorSpec([None], tf.float32)},
        ),
        unknown=(lambda other: {"other": other}, {"other": tf.TensorSpec([None, 7], tf.float32)}),
        failing=(
            lambda town: {"number": tf.strings.to_number(town)},
            {"town": TEXT},
        ),
        transform_features=(transform_features, {"examples": TEXT}),
    )
    found = sent(tmp_path, model)
    served = {"serving_default", "serving_columns", "serving_files", "serving_images"}
    assert set(found) == served | {"continue_text", "serving_transformed", "by_name"}
    assert all(len(inputs) == 2 for inputs in found.values())
    assert [each["examples"].tolist() for each in found["serving_default"]] == [
        [one] for one in EXAMPLES
    ]
    first, second = found["serving_columns"]
    assert (first["rooms"].tolist(), second["rooms"].tolist()) == ([[3, 4]], [[5]])
    assert (first["town"].tolist(), second["town"].tolist()) == ([b"Bonn"], [b""])
    for image in found["serving_images"]:  # from bytes, and from a PNG
        np.testing.assert_array_equal(image["images"], PIXELS[np.newaxis])
    assert found["serving_files"][0]["files"].tolist() == [PIXELS.tobytes()]
    assert found["continue_text"][0]["temperature"] == 0
    for name, key in (("serving_transformed", "inputs"), ("by_name", "area_scaled")):
        np.testing.assert_allclose([each[key][0] for each in found[name]], [0.15, 0.25])


def test_a_number_that_is_missing_is_nan():
    spec = tf.TensorSpec([None], tf.float32)
    (value,) = warmup._column(tf.train.Feature(), spec).numpy()
    assert math.isnan(value)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records(tmp_path, compression):
    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = str(tmp_path), '["train", "eval"]'
    folder = tmp_path / "Split-eval"
    folder.mkdir()
    suffix = ".gz" if compression else ""
    for number in range(2):
        path = folder / f"data_tfrecord-0000{number}-of-00002{suffix}"
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for _ in range(3):
                writer.write(b"%d" % number)
    assert warmup.records(examples, "eval", 2) == [b"0"] * 2
    assert warmup.records(examples, "eval", 4) == [b"0"] * 3 + [b"1"]
    assert len(warmup.records(examples, "eval", 99)) == 6
