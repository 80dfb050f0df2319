"""The kinds of columns that stand for Estimator's feature columns."""

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.trainer_module.data.tasks.tables import columns
from stagecraft.trainer_module.data.tasks.tables.classification import Classification
from stagecraft.trainer_module.data.tasks.tables.columns import (
    Bucketized,
    Crossed,
    Hashed,
    Listed,
    Numeric,
)
from stagecraft.trainer_module.data.tasks.tables.regression import Regression
from stagecraft.trainer_module.settings import TaskSettings

VALUES = [0.5, 1.0, 3.0, None]
TEXTS = ["a", "b", "other", None]


def half(values):
    return values / 2


def transform(task, rows, spec, folder):
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

    raw = [
        {name: [] if value is None else [value] for name, value in row.items()} | {"y": 0.0}
        for row in rows
    ]
    raw_spec = {name: tf.io.VarLenFeature(kind) for name, kind in spec.items()}
    raw_spec["y"] = tf.io.FixedLenFeature([], tf.float32)
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(raw_spec))
    with tft_beam.Context(temp_dir=str(folder)):
        (found, _), _ = (raw, metadata) | tft_beam.AnalyzeAndTransformDataset(task.preprocess)
    return {name: [np.ravel(row[name])[0] for row in found] for name in found[0]}


def test_transform_gives_what_estimator_s_columns_give(tmp_path):
    boundaries = [1.0, 2.0]
    columns = {
        "n": Numeric(normalizer="none"),
        "default": Numeric(source="n", normalizer="none", default=7, missing_indicator=True),
        "half": Numeric(source="n", normalizer=half),
        "named": Numeric(source="n", normalizer=f"{__name__}:half"),
        "bucket": Bucketized(source="n", boundaries=boundaries),
        "listed": Listed(["b", "a"], source="t"),
        "oov": Listed(["b", "a"], source="t", oov=3),
        "hashed": Hashed(5, source="t"),
        "crossed": Crossed(["t", Bucketized(source="n", boundaries=boundaries)], 40, hash_key=9),
    }
    task = Regression(columns, "y")
    assert task.schema_features == ("n", "t", "y")
    assert task.served_features == ("n", "t")
    rows = [{"n": n, "t": t} for n, t in zip(VALUES, TEXTS, strict=True)]
    found = transform(task, rows, {"n": tf.float32, "t": tf.string}, tmp_path)
    assert found["n"] == [0.5, 1, 3, 0]
    assert found["default"] == [0.5, 1, 3, 7]
    assert found["default_missing"] == [0, 0, 0, 1]
    assert found["half"] == found["named"] == [0.25, 0.5, 1.5, 0]
    assert found["bucket"] == [0, 1, 2, 3]
    assert found["listed"] == [1, 0, 2, 2]
    known = [text for text in TEXTS if text is not None]
    hashed = [int(tf.strings.to_hash_bucket_fast(text, 3)) for text in known]
    assert found["oov"] == [1, 0, 2 + hashed[2], 5]
    assert found["hashed"] == [int(tf.strings.to_hash_bucket_fast(t, 5)) for t in known] + [5]
    pairs = tf.constant(known)[:, None], tf.constant([0, 1, 2], tf.int64)[:, None]
    crossed = tf.sparse.cross_hashed(pairs, 40, 9).values.numpy().tolist()
    assert found["crossed"] == [*crossed, 40]


def test_a_vocabulary_file_is_read_at_once(tmp_path):
    file = tmp_path / "towns.txt"
    file.write_text("Ulm\nBonn\n")
    column = Listed(file=str(file))
    file.unlink()
    assert column.values == ("Ulm", "Bonn")
    assert column.inputs("town") == {"town": 3}


@pytest.mark.parametrize(
    ("column", "setting"),
    [
        ({"kind": "bucketized", "boundaries": [2, 1]}, "task.args: boundaries"),
        ({"kind": "listed"}, "task.args: values"),
        ({"kind": "listed", "values": ["a", "a"]}, "task.args: values"),
        ({"kind": "listed", "file": "nowhere.txt"}, "task.args: file"),
        ({"kind": "listed", "values": ["a"], "oov": -1}, "task.args: oov"),
        ({"kind": "numeric", "normalizer": "log"}, "task.args: normalizer"),
        ({"kind": "crossed", "keys": ["a"]}, "task.args: keys"),
        ({"kind": "crossed", "keys": ["a", {"kind": "hashed"}]}, "task.args: keys"),
        ({"kind": "crossed", "keys": ["a", {"kind": "bucketized"}]}, "task.args: keys"),
        ({"kind": "crossed", "keys": ["a", "b"], "buckets": 0}, "task.args: buckets"),
    ],
)
def test_wrong_columns_are_refused(column, setting):
    given = {"name": "regression", "args": {"features": {"a": column}, "label": "y"}}
    error = refusal(TaskSettings, given)
    assert error.setting == setting


def test_columns_travel_as_yaml():
    given = {
        "kind": "crossed",
        "keys": ["town", {"kind": "bucketized", "source": "age", "boundaries": [30]}],
    }
    args = {"features": {"both": given}, "label": "y", "num_classes": 3}
    task = TaskSettings(name="classification", args=args).found
    assert task.columns == {
        "both": Crossed(["town", Bucketized(source="age", boundaries=[30])], buckets=100)
    }
    assert task.schema_features == ("town", "age", "y")
    assert isinstance(task, Classification)


@pytest.mark.parametrize("text", [b"", b"plain", b"a\nb", b"\r\n", b"\\n", b"\\\\\n\\", b"end\\"])
def test_a_line_of_a_vocabulary_is_its_text_again(text):
    assert columns.of_line(columns.line(tf.constant([text])).numpy()[0]) == text
