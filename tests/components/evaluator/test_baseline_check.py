"""A model is compared with the last blessed one, unless the settings do not ask for it."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import tensorflow as tf
from artifacts import artifact
from tfx.types import artifact_utils, standard_artifacts

from stagecraft.components.evaluator import baseline_check
from stagecraft.components.evaluator.baseline_check import BaselineError
from stagecraft.components.evaluator.eval_config import make_eval_config
from stagecraft.trainer_module.settings import TaskSettings
from stagecraft.trainer_module.training.assets import CLASSES, METRICS

TRAINED: dict[str, Any] = {
    "area": tf.io.FixedLenFeature([], tf.float32),
    "rooms": tf.io.FixedLenFeature([], tf.float32, default_value=0.0),
    "town": tf.io.VarLenFeature(tf.string),
    "price": tf.io.FixedLenFeature([], tf.int64),
}
ROW: dict[str, Any] = {"area": 1.5, "rooms": 2.0, "town": b"Bonn", "price": 300}


def serialized(row: dict[str, Any]) -> bytes:
    example = tf.train.Example()
    for name, value in row.items():
        feature = example.features.feature[name]
        lists = {int: feature.int64_list, float: feature.float_list, bytes: feature.bytes_list}
        lists[type(value)].value.append(value)
    return bytes(example.SerializeToString())


def model(folder: pathlib.Path, metrics: str = "[]") -> Any:
    """A model that reads ``TRAINED``, as the Trainer exports it."""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
        def __call__(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"loss": tf.io.parse_example(examples, TRAINED)["area"]}

    module = Module()
    serving = folder / "Format-Serving"
    tf.saved_model.save(module, str(serving), signatures={"evaluation": module.__call__})
    (serving / METRICS).parent.mkdir(exist_ok=True)
    (serving / METRICS).write_text(metrics)
    return artifact(standard_artifacts.Model, folder)


@pytest.fixture(scope="module")
def blessed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return model(tmp_path_factory.mktemp("blessed"))


def examples(folder: pathlib.Path, *rows: dict[str, Any]) -> Any:
    """A file of the split ``eval`` for each row."""
    (folder / "Split-eval").mkdir(parents=True)
    for number, row in enumerate(rows):
        path = folder / "Split-eval" / f"data_tfrecord-{number:05}-of-{len(rows):05}.gz"
        with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
            writer.write(serialized(row))
    found = artifact(standard_artifacts.Examples, folder)
    found.split_names = artifact_utils.encode_split_names(["eval"])
    return found


def check(given: Any, baseline: Any, data: Any, *, not_worse: bool = True) -> str:
    task = TaskSettings(name="regression")
    config = make_eval_config(task=task, not_worse=not_worse, better_than_constant=False)
    return baseline_check.check([given], [baseline], [data], ["eval"], config)


@pytest.mark.parametrize(
    ("change", "column", "trained", "found"),
    [
        ({"price": 299.5}, "price", "int64", "float"),
        ({"price": b"300"}, "price", "int64", "string"),
        ({"area": 1}, "area", "float", "int64"),
        ({"rooms": 2}, "rooms", "float", "int64"),
        ({"town": 5}, "town", "string", "int64"),
        ({"area": None}, "area", "float", "missing"),
    ],
)
def test_a_column_of_another_type(blessed, tmp_path, change, column, trained, found):
    row = {name: each for name, each in (ROW | change).items() if each is not None}
    data = examples(tmp_path / "examples", ROW, row)
    with pytest.raises(BaselineError) as caught:
        check(blessed, blessed, data)
    error = caught.value
    assert (error.column, error.trained, error.found) == (column, trained, found)
    assert (error.setting, error.suggestion) == (
        "evaluate.not_worse", "evaluate.not_worse: false"
    )  # fmt: skip
    assert check(blessed, blessed, data, not_worse=False) == error.why


def test_other_classes(blessed, tmp_path):
    given = model(tmp_path / "model")
    (tmp_path / "model/Format-Serving" / CLASSES).write_text('["no", "yes"]')
    data = examples(tmp_path / "examples", ROW)
    with pytest.raises(BaselineError) as caught:
        check(given, blessed, data)
    assert caught.value.setting == "evaluate.not_worse"
    assert check(given, blessed, data, not_worse=False) == caught.value.why
    assert check(given, given, data) == ""


@pytest.mark.parametrize(
    "change", [{}, {"rooms": None}, {"town": None}, {"new": 1.0}, {"price": 0}]
)
def test_what_the_last_blessed_model_can_read(blessed, tmp_path, change):
    row = {name: each for name, each in (ROW | change).items() if each is not None}
    assert check(blessed, blessed, examples(tmp_path / "examples", ROW, row)) == ""


def test_a_value_too_many(blessed, tmp_path):
    """Not the type: the model wants one number."""
    data = examples(tmp_path / "examples", ROW)
    example = tf.train.Example.FromString(serialized(ROW))
    example.features.feature["area"].float_list.value.append(2.0)
    path = tmp_path / "examples" / "Split-eval" / "more.gz"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        writer.write(example.SerializeToString())
    with pytest.raises(BaselineError) as caught:
        check(blessed, blessed, data)
    assert (caught.value.column, caught.value.file) == ("", f"{blessed.uri}/Format-Serving")


def test_other_metrics(blessed, tmp_path):
    """The columns of their sums have another meaning."""
    new = model(tmp_path / "model", metrics='[["mae", 2]]')
    data = examples(tmp_path / "examples", ROW)
    with pytest.raises(BaselineError) as caught:
        check(new, blessed, data)
    assert check(new, blessed, data, not_worse=False) == caught.value.why


def test_models_and_files_of_other_programs_are_left_to_tfma(blessed, tmp_path):
    data = examples(tmp_path / "examples", ROW)
    (tmp_path / "examples" / "Split-eval" / "more").write_bytes(b"PAR1 is no TFRecord")
    assert check(blessed, blessed, data) == ""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="area")])
        def __call__(self, area: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"loss": area}

    for name in ("evaluation", "serving_default"):
        module, folder = Module(), tmp_path / name
        signatures = {name: module.__call__}
        tf.saved_model.save(module, str(folder / "Format-Serving"), signatures=signatures)
        other = artifact(standard_artifacts.Model, folder)
        assert check(other, other, data) == ""
