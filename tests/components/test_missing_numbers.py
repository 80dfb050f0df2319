"""NaN is a missing value for SchemaGen, AnomalyGate and the report; large numbers stay apart."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from artifacts import artifact, artifacts
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import version
from tfx.types import artifact_utils, channel_utils, standard_artifacts
from tfx.utils import io_utils
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from stagecraft.common.errors import UserError
from stagecraft.components import feature_statistics
from stagecraft.components.anomaly_gate.component import AnomalyGate
from stagecraft.components.anomaly_gate.executor import AnomaliesError, Executor as Gate
from stagecraft.components.example_gen.sample import to_example
from stagecraft.components.report import data_summary
from stagecraft.components.schema_gen import Executor as SchemaGen
from stagecraft.trainer_module.data.tasks.tables.columns import Bucketized, Numeric, Vocabulary
from stagecraft.trainer_module.data.tasks.tables.regression import Regression

INPUTS = {
    "examples": standard_artifacts.Examples,
    "statistics": standard_artifacts.ExampleStatistics,
    "schema": standard_artifacts.Schema,
}
SPLITS = ("train", "val")
NAN = math.nan
GOOD = {"x": [1.0, 2.0, 3.0, 4.0], "y": [0.0, 1.0, 0.0, 1.0]}


class Data:
    """Artifacts of a table in a folder."""

    def __init__(self, folder, train, val):
        self.folder = folder
        for split, columns in zip(SPLITS, (train, val), strict=True):
            rows = [
                to_example(dict(zip(columns, row, strict=True))).SerializeToString()
                for row in zip(*columns.values(), strict=True)
            ]
            for name in ("examples", "statistics"):
                (folder / name / f"Split-{split}").mkdir(parents=True)
            with tf.io.TFRecordWriter(str(folder / f"examples/Split-{split}/data")) as writer:
                for row in rows:
                    writer.write(row)
            batch = ExamplesToRecordBatchDecoder().DecodeBatch(rows)
            found = stats_impl.generate_statistics_in_memory(batch, tfdv.StatsOptions())
            path = folder / f"statistics/Split-{split}/FeatureStats.pb"
            path.write_bytes(found.SerializeToString())
        self.inputs = artifacts(INPUTS, folder)
        for name in ("examples", "statistics"):
            self.inputs[name][0].split_names = artifact_utils.encode_split_names(list(SPLITS))
        # As the orchestrator marks what StatisticsGen wrote; else another file name is expected.
        properties = self.inputs["statistics"][0]
        properties.set_string_custom_property("tfx_version", version.__version__)

    def schema(self):
        """The inferred schema, by feature."""
        (self.folder / "schema").mkdir(exist_ok=True)
        given = {"statistics": self.inputs["statistics"]}
        excluded = {"exclude_splits": json.dumps(["val"]), "infer_feature_shape": 1}
        SchemaGen().Do(given, {"schema": self.inputs["schema"]}, excluded)
        path = self.folder / "schema/schema.pbtxt"
        found = io_utils.parse_pbtxt_file(str(path), schema_pb2.Schema())
        return {feature.name: feature for feature in found.feature}

    def gate(self, numbers=("x", "y")):
        anomalies = artifact(standard_artifacts.ExampleAnomalies, self.folder / "anomalies")
        properties = {"pictures": 0, "numbers": json.dumps(numbers)}
        Gate().Do(self.inputs, {"anomalies": [anomalies]}, properties)

    def findings(self, numbers=("x", "y")):
        with pytest.raises(AnomaliesError) as caught:
            self.gate(numbers)
        return [(each.split, each.feature) for each in caught.value.findings]


def test_a_column_with_nan_has_gaps(tmp_path):
    data = Data(tmp_path, GOOD | {"x": [1.0, NAN, 3.0, NAN]}, GOOD | {"x": [NAN, 2.0, 3.0, 4.0]})
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
    data = Data(tmp_path, GOOD, GOOD | {"x": [1.0, 2.0, NAN, NAN]})
    data.schema()
    assert data.findings() == [("val", "x")]


def test_a_label_with_nan_is_refused(tmp_path):
    data = Data(tmp_path, GOOD | {"y": [0.0, NAN, 1.0, 1.0]}, GOOD)
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
    assert caught.value.value == "BYTES"


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
    data = Data(tmp_path, GOOD | {"x": values}, GOOD | {"x": values})
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
    channels = {name: channel_utils.as_channel([kind()]) for name, kind in INPUTS.items()}
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
