"""Fixtures: trainings that are over in a few seconds; raw examples and their Transform graph."""

import pathlib
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

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
def transform(training_data: Any):
    """The graph that Transform has made for ``training_data``: a ``tft.TFTransformOutput``."""
    import tensorflow_transform as tft

    return tft.TFTransformOutput(str(training_data.transform_graph))
