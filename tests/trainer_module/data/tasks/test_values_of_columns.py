"""Each kind of column, for each odd value, from each format, in training, evaluation and serving.

What is expected comes from rows of Python values, by NumPy.
"""

import csv
import datetime
import math
from collections import Counter

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from example_gens import examples, values
from tfx.proto import example_gen_pb2
from transformed import transformed

from stagecraft.components.example_gen import named
from stagecraft.components.example_gen.sample import to_example
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
from stagecraft.trainer_module.data.tasks.tables.columns import (
    Bucketized,
    Crossed,
    Hashed,
    Identity,
    Listed,
    Numeric,
    Vocabulary,
)
from stagecraft.trainer_module.training import export

pytestmark = pytest.mark.slow  # one Transform of many columns

NAN, BIG = math.nan, 2**53
LONG = "x" * 10_000
START = int(datetime.datetime(2026, 1, 1).timestamp())

# The values of raw features, one for each row. Those of the last three have no gaps.
VALUES = {
    "number": [0.0, None, NAN, 1.5, -2.5, float(BIG), -float(BIG), 3.0],
    "small": [0.0, None, NAN, 1.5, -2.5, 4.0, 1.0, 3.0],
    "whole": [0, None, 2, BIG, -BIG, 1, 7, 3],
    "flag": [False, None, True, True, False, False, True, True],
    "text": ["", None, "a\nb", "a\rb", LONG, "a\nb", "\\n", "ä\n"],
    "stamp": [START + n for n in (0, 600, 1200, 1800, 2400, 3000, 3599, 100)],
    "solid": [0.0, 2.0, 1.5, -2.5, 1.0, 4.0, 1.0, 3.0],
    "name": ["a\nb", "b", "b", "", "c", "d", "e", "f"],
}
TYPES = {"number": float, "small": float, "solid": float, "text": str, "name": str}
TYPES |= dict.fromkeys(("whole", "flag", "stamp"), int)
NUMBERS, TEXTS = [name for name in VALUES if TYPES[name] is not str], ["text", "name"]
DENSE = ("stamp", "solid", "name")
LISTED = ["a\nb", "0", LONG, "b", str(BIG)]
BORDERS = [0, 1.5, 3]

KINDS = {
    "numeric": (NUMBERS, lambda source: Numeric(source=source, missing_indicator=True)),
    "default": (
        ["number", "whole", "solid"],
        lambda source: Numeric(source=source, normalizer="none", default=7),
    ),
    "halves": (["number", "whole", "stamp"], lambda source: Bucketized(source=source, buckets=2)),
    "borders": (NUMBERS, lambda source: Bucketized(source=source, boundaries=BORDERS)),
    "identity": (NUMBERS, lambda source: Identity(source=source, size=4)),
    "vocabulary": (["whole", *TEXTS], lambda source: Vocabulary(source=source, size=4)),
    "hashed": (["whole", "flag", *TEXTS], lambda source: Hashed(source=source, buckets=50)),
    "listed": (["whole", "flag", *TEXTS], lambda source: Listed(LISTED, source=source)),
    "crossed": (
        ["whole", "flag", *TEXTS],
        lambda source: Crossed(["flag", source, Bucketized(source="small", boundaries=[0])], 97),
    ),
}
COLUMNS = {
    f"{kind}_{source}": (kind, source) for kind, (sources, _) in KINDS.items() for source in sources
}
INPUTS = [*COLUMNS, *(f"numeric_{source}_missing" for source in NUMBERS)]
ROWS = [dict(zip(VALUES, row, strict=True)) for row in zip(*VALUES.values(), strict=True)]


class Shown(Regression):
    """Its exported model returns the model's inputs."""

    def outputs(self, outputs, schema_path):
        return {"inputs": outputs}


def missing(value):
    return value is None or value == "" or value != value


def present(source):
    return [row[source] for row in ROWS if not missing(row[source])]


def text(value):
    return value if isinstance(value, str) else str(int(value))


def hashed(value, buckets):
    return int(tf.strings.to_hash_bucket_fast(text(value), buckets))


def crossed(row, source):
    parts = [[int(row["flag"])], [row[source]], [int(row["small"] >= 0)]]
    if TYPES[source] is int:
        parts[1] = [int(row[source])]
    tensors = [tf.constant([each]) for each in parts]
    tensors = [each if each.dtype == tf.string else tf.cast(each, tf.int64) for each in tensors]
    tensors[1] = tf.constant([parts[1]], tf.int64 if TYPES[source] is int else tf.string)
    return tf.sparse.cross_hashed(tensors, 97, None).values.numpy()[0]


def expected(name, row):
    """What the model gets for a row; a function of it for quantiles, which are approximate."""
    if name.endswith("_missing"):
        return float(missing(row[name.split("_")[1]]))
    kind, source = COLUMNS[name]
    value, known = row[source], present(source)
    if kind == "crossed":
        gap = any(missing(row[each]) for each in ("flag", "small", source))
        return 97 if gap else crossed(row, source)
    if missing(value):
        ids = {"halves": 2, "borders": 4, "identity": 4, "vocabulary": 5, "hashed": 50, "listed": 5}
        return {"numeric": 0, "default": 7}.get(kind, ids.get(kind))
    if kind == "numeric":
        wide = np.array([int(each) if TYPES[source] is int else each for each in known], float)
        return (float(value) - wide.mean()) / wide.std()
    if kind == "default":
        return np.float32(value)
    if kind == "borders":
        return sum(value >= border for border in BORDERS)
    if kind == "identity":
        return int(value) if 0 <= value < 4 and value == int(value) else 4
    if kind == "vocabulary":
        counts = Counter(map(text, known))
        line = [t.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") for t in counts]
        order = sorted(zip(counts.values(), line, counts, strict=True), reverse=True)[:4]
        ranks = [token for _, _, token in order]
        return ranks.index(text(value)) if text(value) in ranks else 4
    if kind == "hashed":
        return hashed(value, 50)
    if kind == "listed":
        return LISTED.index(text(value)) if text(value) in LISTED else 5
    return None  # quantiles


def check(found, rows):
    """Checks inputs ``{name: [rows]}``."""
    for name in INPUTS:
        kind, source = COLUMNS.get(name, ("", ""))
        got = [float(np.ravel(each)[0]) for each in found[name]]
        want = [expected(name, row) for row in rows]
        if kind != "halves":
            # float32 of a z-score
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=name)
            continue
        pairs = [(row[source], each) for row, each in zip(rows, got, strict=True)]
        assert all(each == 2 for value, each in pairs if missing(value)), name
        ids = [each for value, each in sorted(p for p in pairs if not missing(p[0]))]
        assert ids == sorted(ids) and set(ids) <= {0, 1}, name
        if len(rows) == len(ROWS):
            assert 0.25 <= np.mean(ids) <= 0.75, name


def schema():
    kinds = {int: "INT", float: "FLOAT", str: "BYTES"}
    whole = "presence { min_fraction: 1 min_count: 1 } shape {}"
    lines = [
        f'feature {{ name: "{name}" type: {kinds[kind]} '
        f"{whole if name in DENSE else 'value_count { min: 1 max: 1 }'} }}"
        for name, kind in TYPES.items()
    ]
    return "\n".join([*lines, f'feature {{ name: "y" type: FLOAT {whole} }}'])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Transform's graph of the rows, and the loaded model."""
    folder = tmp_path_factory.mktemp("columns")
    columns = {name: KINDS[kind][1](source) for name, (kind, source) in COLUMNS.items()}
    task = Shown(columns, "y", label_scale="none")
    path = folder / "schema.pbtxt"
    path.write_text(schema())
    rows = [
        {k: v if k in DENSE else [] if v is None else [v] for k, v in row.items()} | {"y": 0.0}
        for row in ROWS
    ]
    graph = transformed(task, path, rows, folder, function=task.preprocess)
    inputs = {
        name: keras.Input((1,), name=name, dtype="float32" if ids is None else "int64")
        for name, ids in task._inputs.items()
    }
    wide = [keras.ops.cast(inputs[name], "float32") for name in INPUTS]
    model = keras.Model(inputs, keras.layers.Concatenate()(wide))
    export.export(folder / "model", model, {}, graph, task, str(path))
    return graph, tf.saved_model.load(str(folder / "model"))


def write_csv(folder):
    with open(folder / "rows.csv", "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*VALUES, "y"])
        for row in ROWS:
            plain = {k: int(v) if isinstance(v, bool) else v for k, v in row.items()}
            writer.writerow(["" if v is None else v for v in plain.values()] + [0.0])


def write_parquet(folder):
    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    columns = {
        name: pa.array(given, pa.bool_() if name == "flag" else kinds[TYPES[name]])
        for name, given in VALUES.items()
    }
    pa.parquet.write_table(pa.table(columns | {"y": [0.0] * len(ROWS)}), folder / "rows.parquet")


def write_records(folder):
    with tf.io.TFRecordWriter(str(folder / "rows.tfrecord")) as writer:
        for row in ROWS:
            writer.write(to_example(row | {"y": 0.0}).SerializeToString())


FORMATS = {
    "csv": ("tfx.components.CsvExampleGen", write_csv),
    "parquet": ("stagecraft.components.ParquetExampleGen", write_parquet),
    "tfrecord": ("tfx.components.ImportExampleGen", write_records),
}
SPLITS = example_gen_pb2.Output(
    split_config={
        "splits": [{"name": "train", "hash_buckets": 1}, {"name": "val", "hash_buckets": 1}]
    }
)


def call(signature, records):
    return {k: v.numpy() for k, v in signature(examples=tf.constant(records)).items()}


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_means_the_same_everywhere(name, exported, tmp_path):
    graph, model = exported
    component, write = FORMATS[name]
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    made = named.make(component, {}, str(tmp_path / "data"), SPLITS)
    by_stamp = {
        values(each, "stamp")[1][0]: each.SerializeToString()
        for split in examples(made, tmp_path).values()
        for each in split
    }
    records = [by_stamp[row["stamp"]] for row in ROWS]
    if name == "csv":  # an empty cell of a text without gaps is an empty list, not an empty text
        full = [n for n, row in enumerate(ROWS) if row["name"]]
    else:
        full = list(range(len(ROWS)))
    some, rows = [records[n] for n in full], [ROWS[n] for n in full]

    training = graph.transform_features_layer()(tf.io.parse_example(some, graph.raw_feature_spec()))
    check({k: v.numpy() for k, v in training.items()}, rows)
    check(call(model.signatures["transform_features"], some), rows)
    evaluated = call(model.signatures["evaluation"], some)
    assert np.isfinite(evaluated["metrics"][:, 0]).all()
    served = call(model.signatures["serving_default"], records)["inputs"]
    check(dict(zip(INPUTS, served.T, strict=True)), ROWS)


def test_columns_of_a_request(exported):
    _, model = exported
    # A tensor of integers has no sign of absence.
    rows = [row for row in ROWS if row["whole"] is not None and row["flag"] is not None]
    absent = {float: NAN, str: ""}
    kinds = {int: tf.int64, float: tf.float32, str: tf.string}
    columns = {
        name: tf.constant(
            [absent[TYPES[name]] if missing(row[name]) else TYPES[name](row[name]) for row in rows],
            kinds[TYPES[name]],
        )
        for name in VALUES
    }
    served = model.signatures["serving_columns"](**columns)["inputs"].numpy()
    check(dict(zip(INPUTS, served.T, strict=True)), rows)


@pytest.mark.parametrize("name", VALUES)
def test_a_request_without_a_column(name, exported):
    """The mean, or the id of a missing value; whole numbers without gaps are refused by name."""
    _, model = exported
    row = ROWS[2]
    signature = model.signatures["serving_default"]
    absent = [to_example({k: v for k, v in row.items() if k != name})]
    if name in DENSE and TYPES[name] is not int:
        gap = tf.train.Example()
        gap.CopyFrom(absent[0])
        kind = "bytes_list" if TYPES[name] is str else "float_list"
        getattr(gap.features.feature[name], kind).SetInParent()
        absent.append(gap)
        absent.append(to_example(row | {name: "" if TYPES[name] is str else NAN}))
    records = [each.SerializeToString() for each in absent]
    if name == "stamp":
        with pytest.raises(tf.errors.InvalidArgumentError, match="stamp"):
            call(signature, records)
        return
    served = call(signature, records)["inputs"]
    check(dict(zip(INPUTS, served.T, strict=True)), [row | {name: None}] * len(records))


@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("name", ["number", "small", "solid"])
def test_an_infinite_number_in_a_request_is_refused_by_name(name, value, exported):
    _, model = exported
    record = to_example(ROWS[2] | {name: value}).SerializeToString()
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"the column {name} "):
        call(model.signatures["serving_default"], [record])


@pytest.mark.parametrize("name", ["whole", "solid", "name"])
def test_several_values_are_refused_by_name(name, exported):
    _, model = exported
    value = ROWS[2][name]
    record = to_example(ROWS[2] | {name: [value, value]}).SerializeToString()
    with pytest.raises(tf.errors.InvalidArgumentError, match=name):
        call(model.signatures["serving_default"], [record])


def test_an_infinite_number_in_training_is_refused_by_name(tmp_path):
    path = tmp_path / "schema.pbtxt"
    whole = "presence { min_fraction: 1 min_count: 1 } shape {}"
    path.write_text(
        "\n".join(f'feature {{ name: "{name}" type: FLOAT {whole} }}' for name in ("x", "z", "y"))
    )
    task = Regression({"x": Numeric(), "z": Bucketized(2)}, "y")
    rows = [{"x": float(n), "z": float(n), "y": 0.0} for n in range(8)]
    rows[3]["z"] = math.inf  # the highest bucket
    graph = transformed(task, path, rows, tmp_path, function=task.preprocess)
    layer = graph.transform_features_layer()
    raw = {name: tf.constant([math.inf if name == "z" else 1.0]) for name in ("x", "z", "y")}
    assert layer(raw)["z"].numpy().tolist() == [[1]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="the column x "):
        layer(raw | {"x": tf.constant([math.inf])})
