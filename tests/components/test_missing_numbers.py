"""NaN is a missing value for SchemaGen, AnomalyGate and the report; large numbers stay apart."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from gated_tables import gated
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.types import channel_utils, standard_artifacts

from stagecraft.common.errors import UserError
from stagecraft.components import feature_statistics
from stagecraft.components.anomaly_gate.component import AnomalyGate
from stagecraft.components.report import data_summary
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
from stagecraft.trainer_module.data.tasks.tables.columns import Bucketized, Numeric, Vocabulary

NAN = math.nan
GOOD = {"x": [1.0, 2.0, 3.0, 4.0], "y": [0.0, 1.0, 0.0, 1.0]}


def train_and_val(train, val):
    return {"train": train, "val": val}


def test_a_column_with_nan_has_gaps(tmp_path):
    data = gated(
        tmp_path,
        train_and_val(GOOD | {"x": [1.0, NAN, 3.0, NAN]}, GOOD | {"x": [NAN, 2.0, 3.0, 4.0]}),
    )
    schema = data.schema()
    assert not schema["x"].HasField("shape") and schema["x"].presence.min_fraction == 0
    assert schema["y"].HasField("shape") and schema["y"].presence.min_fraction == 1
    data.gate()
    rows = data_summary._features(data.inputs["statistics"][0])
    assert {(row.split, row.feature): (row.count, row.missing) for row in rows} == {
        ("train", "x"): (2, 2),
        ("val", "x"): (3, 1),
        ("train", "y"): (4, 0),
        ("val", "y"): (4, 0),
    }


def test_nan_in_a_column_without_gaps_is_an_anomaly(tmp_path):
    data = gated(tmp_path, train_and_val(GOOD, GOOD | {"x": [1.0, 2.0, NAN, NAN]}))
    data.schema()
    assert data.findings() == [("val", "x")]


def test_a_label_with_nan_is_refused(tmp_path):
    data = gated(tmp_path, train_and_val(GOOD | {"y": [0.0, NAN, 1.0, 1.0]}, GOOD))
    data.schema()
    with pytest.raises(UserError) as caught:
        Regression({"x": "numeric"}, "y").model_arguments(str(tmp_path / "schema/schema.pbtxt"))
    assert caught.value.record == "y"
    gap = tf.sparse.SparseTensor([[0, 0]], [1.0], [2, 1])
    with pytest.raises(UserError) as caught:
        Regression({"x": "numeric"}, "y").preprocess({"x": tf.ones([2]), "y": gap})
    assert caught.value.record == "y"


@pytest.mark.parametrize(("column", "label"), [("text", "number"), ("number", "text")])
def test_a_text_in_place_of_a_number_is_refused_before_training(column, label):
    given = {"text": tf.constant(["NA", "1"]), "number": tf.constant([1.0, 2.0])}
    with pytest.raises(UserError) as caught:
        Regression({"x": "numeric"}, "y").preprocess({"x": given[column], "y": given[label]})
    assert caught.value.record == ("x" if column == "text" else "y")
    setting = "task.args.features.x" if column == "text" else "task.args.label"
    assert caught.value.setting == setting


START = 1_767_225_600.0


@pytest.mark.parametrize(
    ("values", "is_refused"),
    [
        ([1.0, 2.0, math.inf, 4.0], True),
        ([-math.inf, 2.0, 3.0, 4.0], True),
        (list(START + 3600 * np.arange(4.0)), True),
        (list(START + 86400 * np.arange(4.0)), False),
        ([1000 * START, 1000 * START + 3_600_000, 1000 * START, 1000 * START], True),
        ([0.0, START, 2.0**53, -(2.0**53)], False),
        ([2.0**53] * 4, False),
        ([0.3, float(np.nextafter(np.float32(0.3), np.float32(1))), 0.3, 0.3], False),
        ([NAN, NAN, NAN, NAN], False),
    ],
)
def test_numbers_that_float32_cannot_hold(values, is_refused, tmp_path):
    data = gated(tmp_path, train_and_val(GOOD | {"x": values}, GOOD | {"x": values}))
    data.schema()
    data.gate(numbers=["y"])  # no input of the model is this number
    if is_refused:
        assert data.findings() == [("train", "x"), ("val", "x")]
    else:
        data.gate()


def test_what_the_gate_is_told():
    columns = {
        "a": Numeric(source="n"),
        "b": Bucketized(source="m"),
        "c": Vocabulary(),
        "d": Numeric(),
    }
    assert Regression(columns, "y", weight="w").number_features == ("d", "n", "w", "y")
    kinds = {
        "examples": standard_artifacts.Examples,
        "statistics": standard_artifacts.ExampleStatistics,
        "schema": standard_artifacts.Schema,
    }
    channels = {name: channel_utils.as_channel([kind()]) for name, kind in kinds.items()}
    gate = AnomalyGate(**channels, numbers=["y", "d"])
    assert json.loads(gate.exec_properties["numbers"]) == ["d", "y"]
    assert gate.exec_properties != AnomalyGate(**channels).exec_properties


def test_each_value_of_a_list_counts_for_its_example():
    """TFDV counts NaN values, not examples with them."""
    feature = statistics_pb2.FeatureNameStatistics(
        num_stats={
            "common_stats": {"num_non_missing": 5, "tot_num_values": 9, "max_num_values": 3},
            "histograms": [{"num_nan": 4}],
        }
    )
    assert feature_statistics.present(feature) == (5, 0)
