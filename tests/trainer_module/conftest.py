"""Fixtures: trainings that are over in a few seconds; raw examples and their Transform graph."""

import functools
import pathlib
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from made_once import made_once

EXAMPLES = 300
FILES = 6

SETTINGS = {
    "train_model": "user_models:tiny",
    "train_batch_size": 8,
    "train_eval_batch_size": 4,
    "train_steps": 6,
    "train_eval_every": 2,
    "train_optimizer": "adamw",
    "train_learning_rate": 0.01,
    "train_ema_decay": 0.5,
}


@pytest.fixture(autouse=True)
def _user_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `user_models` importable, as a user's own module is."""
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parent))


@pytest.fixture(scope="session")
def make_fn_args(training_data: Any) -> Callable[..., types.SimpleNamespace]:
    """Folder, overrides -> what TFX hands to `run_fn`."""

    def make(folder: pathlib.Path, **settings: Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            train_files=training_data.files("train"),
            eval_files=training_data.files("val"),
            transform_graph_path=str(training_data.transform_graph),
            schema_path=str(training_data.schema / "schema.pbtxt"),
            model_run_dir=str(folder / "model_run"),
            serving_model_dir=str(folder / "model" / "Format-Serving"),
            working_dir=str(folder / "checkpoints"),
            custom_config={"settings": SETTINGS | settings},
        )

    return make


class Raw(NamedTuple):
    """Raw examples and the files they lie in."""

    images: np.ndarray
    """uint8 ``[n, 32, 32, 3]``; channels differ in mean and variance."""
    labels: np.ndarray
    """int64 ``[n]``."""
    ids: np.ndarray
    """int64 ``[n]``: neither sorted nor dense."""
    pattern: str
    """Of the TFRecords; examples go round the files."""


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Raw:
    rng = np.random.default_rng(7)
    images = rng.normal([60, 128, 190], [20, 40, 60], size=(EXAMPLES, 32, 32, 3))
    images = images.clip(0, 255).astype(np.uint8)
    labels = rng.integers(0, 10, EXAMPLES)
    ids = rng.permutation(10 * EXAMPLES)[:EXAMPLES]
    folder = tmp_path_factory.mktemp("raw")
    _write(folder, images, labels, ids)
    return Raw(images, labels, ids, f"{folder}/*")


def _write(folder: pathlib.Path, images: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> None:
    import tensorflow as tf

    for file in range(FILES):
        path = folder / f"data_tfrecord-{file:05d}-of-{FILES:05d}"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for index in range(file, len(images), FILES):
                example = tf.train.Example()
                feature = example.features.feature
                feature["image"].bytes_list.value.append(images[index].tobytes())
                feature["label"].int64_list.value.append(labels[index])
                feature["id"].int64_list.value.append(ids[index])
                writer.write(example.SerializeToString())


@pytest.fixture(scope="session")
def transform(raw: Raw, tmp_path_factory: pytest.TempPathFactory):
    """What Transform makes of ``raw``: a ``tft.TFTransformOutput``."""
    import tensorflow_transform as tft

    make = functools.partial(_transform, raw)
    return tft.TFTransformOutput(str(made_once(tmp_path_factory, "transform", make)))


def _transform(raw: Raw, folder: pathlib.Path) -> None:
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

    from stagecraft.trainer_module.preprocessing import preprocessing_fn

    metadata = dataset_metadata.DatasetMetadata(
        schema_utils.schema_from_feature_spec(
            {
                "image": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64),
                "id": tf.io.FixedLenFeature([], tf.int64),
            }
        )
    )
    rows = [
        {"image": image.tobytes(), "label": label, "id": id_}
        for image, label, id_ in zip(raw.images, raw.labels, raw.ids, strict=True)
    ]
    with (
        beam.Pipeline("BundleBasedDirectRunner") as pipeline,
        # Batches of 70 do not divide 300: the last one is short.
        tft_beam.Context(
            temp_dir=str(folder / "tmp"), desired_batch_size=70, force_tf_compat_v1=False
        ),
    ):
        graph = (pipeline | beam.Create(rows), metadata) | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = graph | tft_beam.WriteTransformFn(str(folder))
        _ = metadata | tft_beam.WriteMetadata(str(folder / "metadata"), pipeline)
