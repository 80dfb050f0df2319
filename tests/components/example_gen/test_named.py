import pytest
from google.protobuf import json_format
from tfx.components import CsvExampleGen, ImportExampleGen
from tfx.proto import example_gen_pb2

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import named, sample
from stagecraft.components.example_gen.kinds import checked_csv, parquet

SPLITS = example_gen_pb2.Output(
    split_config={
        "splits": [{"name": "train", "hash_buckets": 9}, {"name": "val", "hash_buckets": 1}]
    }
)
CSV = "tfx.components.CsvExampleGen"


def proto(component, name):
    kinds = {
        "input_config": example_gen_pb2.Input,
        "output_config": example_gen_pb2.Output,
        "custom_config": example_gen_pb2.CustomConfig,
    }
    return json_format.Parse(component.exec_properties[name], kinds[name]())


def names(component):
    return [each.name for each in proto(component, "output_config").split_config.splits]


def test_a_folder_and_splits_by_hash():
    made = named.make(CSV, {}, "/data", SPLITS)
    assert isinstance(made, CsvExampleGen)
    assert made.exec_properties["input_base"] == "/data"
    assert names(made) == ["train", "val"]


def test_a_single_file(tmp_path):
    file = tmp_path / "houses.csv"
    file.write_text("a,b\n1,2\n")
    made = named.make(CSV, {}, str(file), SPLITS)
    assert made.exec_properties["input_base"] == str(tmp_path)
    assert proto(made, "input_config").splits[0].pattern == "houses.csv"


def test_mappings_become_protos_and_names_values():
    splits = [{"name": name, "pattern": f"{name}/*"} for name in ("train", "val")]
    arguments = {"input_config": {"splits": splits}, "payload_format": "FORMAT_TF_EXAMPLE"}
    made = named.make("tfx.components:ImportExampleGen", arguments, "/data", SPLITS)
    assert isinstance(made, ImportExampleGen)
    patterns = [each.pattern for each in proto(made, "input_config").splits]
    assert patterns == ["train/*", "val/*"] and names(made) == []


def test_an_executor_of_its_own():
    path = "stagecraft.components.example_gen.kinds.parquet.ParquetExecutor"
    made = named.make(
        "tfx.components.example_gen.component.FileBasedExampleGen",
        {"custom_executor_spec": path},
        "/data",
        SPLITS,
    )
    assert made.executor_spec.executor_class is parquet.ParquetExecutor
    assert proto(made, "custom_config").HasField("custom_config")


@pytest.mark.parametrize(
    "path", ["tfx.components.CsvExampleGen", "stagecraft.components.PackagedCsvExampleGen"]
)
def test_the_code_of_the_reader_counts(path, monkeypatch):
    """TFX's cache key has the name of an executor alone."""
    found = proto(named.make(path, {}, "/data", SPLITS), "custom_config")
    monkeypatch.setattr(sample, "code_fingerprint", lambda *code: "other")
    assert found != proto(named.make(path, {}, "/data", SPLITS), "custom_config")


@pytest.mark.parametrize(
    ("path", "arguments", "source", "setting"),
    [
        ("tfx.components.CsvExampelGen", {}, "/data", "data.example_gen"),
        ("nowhere.ExampleGen", {}, "/data", "data.example_gen"),
        ("tfx.components.StatisticsGen", {}, "/data", "data.example_gen_args"),
        (CSV, {"input_bas": "/data"}, "/data", "data.example_gen_args"),
        (CSV, {"input_config": {"split": []}}, "/data", "data.example_gen_args.input_config"),
        (CSV, {}, None, "data.source"),
        (
            CSV,
            {"output_config": {"split_config": {"splits": [{"name": "train"}, {"name": "test"}]}}},
            "/data",
            "data.example_gen_args",
        ),
        (
            "tfx.components.ImportExampleGen",
            {"payload_format": "TEXT"},
            "/data",
            "data.example_gen_args.payload_format",
        ),
    ],
)
def test_refusals(path, arguments, source, setting):
    with pytest.raises(SettingError) as caught:
        named.make(path, arguments, source, SPLITS)
    assert caught.value.setting == setting


def test_a_folder_of_a_package():
    inside = "examples/chicago_taxi_pipeline/data/big_tipper_label"
    assert checked_csv.packaged_folder(f"package:tfx/{inside}").endswith(f"tfx/{inside}")
    assert checked_csv.packaged_folder("/data") == "/data"
    for wrong in (
        "package:tfx/none",
        "package:nowhere/data",
        "package:nowhere.at/data",
        "package:.a/b",
    ):
        with pytest.raises(SettingError):
            checked_csv.packaged_folder(wrong)
