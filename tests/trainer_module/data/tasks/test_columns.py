"""The kinds of columns that stand for Estimator's feature columns."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from refusals import refusal

from stagecraft.trainer_module.data.tasks.kinds.classification import Classification
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
from stagecraft.trainer_module.data.tasks.mismatches import Observed
from stagecraft.trainer_module.data.tasks.tables import column, columns
from stagecraft.trainer_module.data.tasks.tables.columns import (
    Bucketized,
    Crossed,
    Hashed,
    Listed,
    Numeric,
)
from stagecraft.trainer_module.data.tasks.tables.lists import MultiHot, Sequence
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_number_has_a_text_of_its_own(dtype):
    given = np.array([1, -7, 1234567, 1234568, 2**24, 0.5, 0.1, 1234567.5, 1e-9, 1e30], dtype)
    found = column.texts(tf.constant(given)).numpy().tolist()
    assert found[:7] == [b"1", b"-7", b"1234567", b"1234568", b"16777216", b"0.5", b"0.1"]
    np.testing.assert_array_equal(np.array([*map(float, found)], dtype), given)
    assert column.texts(tf.constant([2**62 + 1])).numpy() == [str(2**62 + 1).encode()]


def test_decimal_numbers_in_a_list(monkeypatch):
    monkeypatch.setattr(tft, "make_and_track_object", lambda make, name: make())
    for values in ([7, 5, 0.5], ["7", "5", "0.5"], [7.0, 5.0, 0.5]):
        found = Listed(values).result("t", {"t": tf.constant([5.0, 0.5, 7.0, 1.0])})
        assert found["t"].numpy().ravel().tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize(
    ("kind", "values", "fits"),
    [
        (Observed("INT"), ["01", "02"], False),
        (Observed("INT"), ["01", "2"], True),
        (Observed("FLOAT"), ["1.0"], False),
        (Observed("FLOAT"), ["1.5"], True),
        (Observed("FLOAT"), ["a"], False),
        (Observed("BYTES"), ["a"], True),
        (Observed("BYTES", values={"train": {"A": 3}, "val": {"a": 1}}), ["a"], False),
        (Observed("BYTES", values={"train": {"A": 3, "a": 1}}), ["a", "b"], True),
    ],
)
def test_a_list_has_a_value_of_the_column(kind, values, fits):
    observed = {"x": kind, "y": Observed("FLOAT")}
    for given in (Listed(values), Sequence(of=Listed(values), length=2)):
        found = [*Regression({"x": given}, "y").mismatches(observed)]
        name = "x.values" if isinstance(given, Listed) else "x.of.values"
        wanted = [] if fits else [(f"task.args.features.{name}", "x")]
        assert [(each.setting, each.feature) for each in found] == wanted


def test_decimal_numbers_are_crossed_if_they_are_whole():
    crossed = Crossed(["a", "b"], 1000)
    numbers = {"a": [1, 2, 3], "b": [7, 8, 9]}
    whole, decimal = (
        crossed.result("c", {name: tf.constant(each, dtype) for name, each in numbers.items()})
        for dtype in (tf.int64, tf.float32)
    )
    assert whole["c"].numpy().tolist() == decimal["c"].numpy().tolist()
    with pytest.raises(tf.errors.InvalidArgumentError, match="the column a "):
        crossed.result("c", {"a": tf.constant([0.4]), "b": tf.constant(["x"])})
    checks = [*crossed.value_checks("c")]
    assert [each.feature for each in checks] == ["a", "b"]
    assert checks[0].setting.endswith(".keys")
    assert checks[0].accepts(tf.constant([1.0, 0.4])).numpy().tolist() == [True, False]
    assert checks[0].accepts(tf.constant(["0.4"])).numpy().tolist() == [True]


def test_the_code_and_the_files_of_columns_count(tmp_path):
    file = tmp_path / "towns.txt"
    file.write_text("Ulm\nBonn\n")
    task = Regression(
        {
            "n": Sequence(of=Numeric(normalizer=f"{__name__}:half"), length=2),
            "towns": MultiHot(of=Listed(file=str(file))),
            "both": Crossed(["n", Bucketized(source="m")]),
        },
        "y",
    )
    assert f"{__name__}:half" in task.code
    assert {type(each).__module__ for each in task.columns.values()} < {*task.code}
    assert task.files == (str(file),)


@pytest.mark.parametrize("text", [b"", b"plain", b"a\nb", b"\r\n", b"\\n", b"\\\\\n\\", b"end\\"])
def test_a_line_of_a_vocabulary_is_its_text_again(text):
    assert columns.of_line(columns.line(tf.constant([text])).numpy()[0]) == text
