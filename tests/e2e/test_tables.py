"""A table with zeros, gaps, line breaks and seconds since 1970: from Parquet to predictions."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
import warmups
from support import run
from tensorflow_metadata.proto.v0 import statistics_pb2

from stagecraft.components.feature_statistics import name_of, present

START, ROWS = 1_767_225_600, 2000
TEXTS = {"a\nb": 40.0, "a\nc": -40.0, "": 10.0, None: 10.0}
FEATURES = {
    "n": "numeric",
    "flag": {"kind": "identity", "size": 2},
    "second": "numeric",
    "gap": {"kind": "numeric", "missing_indicator": True},
    "text": {"kind": "vocabulary", "size": 10},
}


def table():
    """Columns, and a label that they determine: ``10 n + 1`` and so on; ``n`` is 0 in half."""
    draw = np.random.default_rng(0)
    n = np.where(draw.random(ROWS) < 0.5, 0, draw.integers(0, 10, ROWS))
    flag = draw.random(ROWS) < 0.5
    second = START + draw.integers(0, 3600, ROWS)
    gap = draw.normal(0, 5, ROWS)
    absent = draw.integers(0, 8, ROWS)  # 0: null, 1: NaN
    text = draw.choice(np.array([*TEXTS], object), ROWS)
    label = 10 * n + 1 + 20 * flag + (second - START) / 36
    label += np.where(absent < 2, 0.0, gap) + np.array([TEXTS[each] for each in text])
    gaps = [[None, math.nan][k] if k < 2 else each for k, each in zip(absent, gap, strict=True)]
    columns = {"n": pa.array(n), "flag": pa.array(flag), "second": pa.array(second)}
    columns |= {"gap": pa.array(gaps, pa.float64(), from_pandas=False), "text": pa.array(text)}
    return pa.table(columns | {"label": pa.array(label)}), absent


@pytest.mark.slow
def test_a_table_from_parquet_to_predictions(tmp_path):
    rows, absent = table()
    (tmp_path / "data").mkdir()
    pa.parquet.write_table(rows, tmp_path / "data" / "rows.parquet")
    settings = {
        "name": "table",
        "task": {"name": "regression", "args": {"features": FEATURES, "label": "label"}},
        "data": {
            "example_gen": "stagecraft.components.ParquetExampleGen",
            "source": str(tmp_path / "data"),
            "infer_schema": True,
        },
        "push": {"keep": 1, "warmup": 3},
    }
    (tmp_path / "table.yaml").write_text(json.dumps(settings))
    done = run(tmp_path / "out", "--config", tmp_path / "table.yaml", settings=())
    metrics = done.result["metrics"]
    variance = np.var(rows["label"].to_numpy())
    assert done.result["blessed"] and metrics["mse"] < 0.02 * variance
    [folder] = (tmp_path / "out").glob("pipeline_root/StatisticsGen/statistics/*")
    counted = 0
    for split in ("train", "val", "eval"):
        text = (folder / f"Split-{split}" / "FeatureStats.pb").read_bytes()
        found = statistics_pb2.DatasetFeatureStatisticsList.FromString(text).datasets[0]
        counted += sum(present(each)[1] for each in found.features if name_of(each) == "gap")
    assert counted == (absent < 2).sum()
    [model] = (tmp_path / "out").glob("pipeline_root/Trainer/model/*/Format-Serving")
    signatures = {"serving_default", "serving_columns", "serving_transformed"}
    assert warmups.answered(done.result["pushed"]) == dict.fromkeys(signatures, 3)
    assert not (model / warmups.FILE).exists()
    predict = tf.saved_model.load(str(model)).signatures["serving_columns"]
    given = {
        "n": tf.constant([0, 0, 5, 0, 0], tf.int64),
        "flag": tf.constant([0, 1, 0, 0, 0], tf.int64),
        "second": tf.constant([START, START, START, START + 3600, START], tf.int64),
        "gap": tf.constant([0.0, 0.0, 0.0, 0.0, math.nan]),
        "text": tf.constant(["a\nb", "a\nb", "a\nb", "a\nb", ""]),
    }
    found = predict(**given)["prediction"].numpy()
    expected = np.array([41, 61, 91, 141, 11])
    deviation = float(np.sqrt(variance))
    np.testing.assert_allclose(found, expected, atol=0.4 * deviation)
