"""Values that a setting does not accept, with the column, the value and what to set."""

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from stagecraft.common.errors import UserError
from stagecraft.components.anomaly_gate import checks
from stagecraft.components.anomaly_gate.scan import value_mismatches
from stagecraft.components.example_gen.sample import to_example
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.tasks.mismatches import Observed

FEATURES = "task.args.features"
TYPES = statistics_pb2.FeatureNameStatistics


def found(tmp_path, features, rows, kind=TYPES.STRING, name="opened on"):
    statistics = statistics_pb2.DatasetFeatureStatistics(num_examples=len(rows))
    feature = statistics.features.add(type=kind)
    feature.path.step.append(name)
    path = tmp_path / "data.gz"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for row in rows:
            writer.write(to_example({name: row}).SerializeToString())
    task = registries.task("regression", {"features": features, "label": "y"})
    checks = task.value_checks()
    files = {split: [str(path)] for split in ("train", "val")}
    return [*value_mismatches(files, dict.fromkeys(files, statistics), checks)]


def test_a_date_of_another_format(tmp_path):
    features = {"opened": {"kind": "date", "source": "opened on"}}
    rows = ["2024-01-31", "", [], "31.01.2024", "soon"]
    [mismatch] = found(tmp_path, features, rows)
    assert mismatch.setting == f"{FEATURES}.opened.format"
    assert (mismatch.value, mismatch.feature) == ("%Y-%m-%d", "opened on")
    assert mismatch.use == "%d.%m.%Y" and "31.01.2024" in mismatch.problem


@pytest.mark.parametrize(
    ("column", "rows", "kind"),
    [
        ({"kind": "date"}, ["2024-01-31", "", []], TYPES.STRING),
        ({"kind": "date", "format": "days"}, [1, []], TYPES.INT),
        ({"kind": "date", "format": "%Y%m%d"}, [20240131], TYPES.INT),
        ({"kind": "date"}, [1.5], TYPES.FLOAT),  # `mismatches` refuses the type
        ({"kind": "sequence", "of": "date"}, [["2024-01-31", "2024-02-01"], []], TYPES.STRING),
        ({"kind": "sequence", "of": "numeric", "separator": ";"}, ["1;2", ""], TYPES.STRING),
        ("vocabulary", ["x"], TYPES.STRING),
    ],
)
def test_values_that_fit(column, rows, kind, tmp_path):
    assert not found(tmp_path, {"opened on": column}, rows, kind)


@pytest.mark.parametrize(
    ("column", "rows", "setting"),
    [
        ({"kind": "sequence", "of": "date"}, [["2024-01-31", "x"]], "of.format"),
        ({"kind": "sequence", "of": "numeric", "separator": ";"}, ["1;2", "1,2"], "separator"),
    ],
)
def test_values_of_lists(column, rows, setting, tmp_path):
    [mismatch] = found(tmp_path, {"opened on": column}, rows)
    assert mismatch.setting == f"{FEATURES}.opened on.{setting}"


def test_a_feature_that_no_split_has(tmp_path):
    assert not found(tmp_path, {"other": {"kind": "date"}}, ["x"])


@pytest.mark.parametrize(
    ("column", "setting", "use"),
    [
        ({"tags": "vocabulary"}, "task.args.features.tags", "kind: multi_hot or kind: sequence"),
        ({"t": {"kind": "hashed", "source": "tags"}}, "task.args.features.t", None),
        ({"tags": {"kind": "multi_hot", "of": "vocabulary"}}, None, None),
        (
            {"tags": {"kind": "sequence", "of": "date", "separator": ";"}},
            "task.args.features.tags",
            None,
        ),
        ({"x": "numeric"}, None, None),
    ],
)
def test_a_list_in_a_column_of_one_value(column, setting, use):
    task = registries.task("regression", {"features": column, "label": "y"})
    observed = dict.fromkeys("xy", Observed("FLOAT")) | {"tags": Observed("BYTES", most=3)}
    found = [*task.mismatches(observed)]
    assert [each.setting for each in found] == [setting] * bool(setting)
    assert not use or found[0].use == use


def test_several_labels_in_another_task():
    task = registries.task("regression", {"features": {"x": "numeric"}, "label": "y"})
    [found] = task.mismatches({"x": Observed("FLOAT"), "y": Observed("FLOAT", most=2)})
    assert (found.setting, found.use) == ("task.args.label", "task.name: multi_label")


def test_a_group_of_representations_has_all_features():
    text = """tensor_representation_group { key: "" value {
      tensor_representation { key: "x" value { varlen_sparse_tensor { column_name: "x" } } } } }"""
    schema = text_format.Parse(text, schema_pb2.Schema())
    checks.check_representations(schema, "schema.pbtxt", ["x"])
    checks.check_representations(schema_pb2.Schema(), "schema.pbtxt", ["x", "y"])
    with pytest.raises(UserError) as caught:
        checks.check_representations(schema, "schema.pbtxt", ["x", "y"])
    assert (caught.value.file, caught.value.record) == ("schema.pbtxt", "y")
