"""The gate against injected Examples, through its executor."""

import dataclasses
import functools
import gzip
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from artifacts import artifact, artifacts
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx import version
from tfx.types import channel_utils, standard_artifacts
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from stagecraft.common.errors import UserError
from stagecraft.components.anomaly_gate import drift
from stagecraft.components.anomaly_gate.checks import Finding
from stagecraft.components.anomaly_gate.component import AnomalyGate
from stagecraft.components.anomaly_gate.executor import AnomaliesError, Executor
from stagecraft.schemas import features

SPLITS = ("train", "val", "eval")
PER_SPLIT = 40
INPUTS = {
    "examples": standard_artifacts.Examples,
    "statistics": standard_artifacts.ExampleStatistics,
    "schema": standard_artifacts.Schema,
}

Values = bytes | int | float | list[int] | list[bytes] | None
Edit = Callable[[str, int, dict[str, Values]], Any]


def example(values: Mapping[str, Values]) -> bytes:
    proto = tf.train.Example()
    for name, value in values.items():
        items = value if isinstance(value, list) else [value]
        if value is None:
            continue
        if value == [] or isinstance(items[0], bytes):
            proto.features.feature[name].bytes_list.value.extend(items)
        elif isinstance(items[0], float):
            proto.features.feature[name].float_list.value.extend(items)
        else:
            proto.features.feature[name].int64_list.value.extend(items)
    return proto.SerializeToString()


@dataclasses.dataclass
class Gate:
    """Artifacts in a folder, and the executor on them."""

    folder: pathlib.Path
    schema: str = features.DATASETS["cifar10"].schema_file
    splits: tuple[str, ...] = SPLITS
    without_statistics: str = ""
    limits: drift.Limits | None = None

    def file(self, split: str, shard: int = 0) -> pathlib.Path:
        return self.folder / f"examples/Split-{split}/data_tfrecord-{shard:05d}-of-00002"

    def write(self, edit: Edit = lambda split, index, values: None) -> None:
        """Writes good examples, each but for what ``edit`` does to its values."""
        number = 0
        for split in self.splits:
            self.file(split).parent.mkdir(parents=True)
            records = []
            for index in range(PER_SPLIT):
                values: dict[str, Values] = {
                    "image": bytes([index]) * 3072,
                    "label": index % 10,
                    "id": number,
                }
                edit(split, index, values)
                records.append(example(values))
                number += 1
            write_records(self.file(split, 0), records[: PER_SPLIT // 2])
            write_records(self.file(split, 1), records[PER_SPLIT // 2 :])
        self.statistics()

    def statistics(self) -> None:
        """As StatisticsGen makes them; without Beam, which would take seconds a split."""
        for split in self.splits:
            files = [str(self.file(split, shard)) for shard in (0, 1)]
            records = list(tf.data.TFRecordDataset(files).as_numpy_iterator())
            path = self.folder / f"statistics/Split-{split}/FeatureStats.pb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(statistics_of(tuple(records)))

    def run(self) -> standard_artifacts.ExampleAnomalies:
        """Runs the executor; returns its output."""
        inputs = artifacts(INPUTS, self.folder)
        [examples], [statistics] = inputs["examples"], inputs["statistics"]
        examples.splits = list(self.splits)
        statistics.splits = [s for s in self.splits if s != self.without_statistics]
        # As the orchestrator marks what StatisticsGen wrote; else another file name is expected.
        statistics.set_string_custom_property("tfx_version", version.__version__)
        (self.folder / "schema").mkdir(exist_ok=True)
        (self.folder / "schema/schema.pbtxt").write_text(pathlib.Path(self.schema).read_text())
        anomalies = artifact(standard_artifacts.ExampleAnomalies, self.folder / "anomalies")
        properties = {"limits": json.dumps(self.limits._asdict())} if self.limits else {}
        Executor().Do(inputs, {"anomalies": [anomalies]}, properties)
        return anomalies

    def refuses(self) -> UserError:
        """Runs the executor, which must raise and leave nothing; returns the error."""
        with pytest.raises(UserError) as caught:
            self.run()
        assert not (self.folder / "anomalies").exists()
        assert "\n" not in str(caught.value)
        return caught.value

    def findings(self) -> tuple[Finding, ...]:
        """The findings of a run that raises."""
        error = self.refuses()
        assert isinstance(error, AnomaliesError)
        return error.findings


@functools.cache
def statistics_of(records: tuple[bytes, ...]) -> bytes:
    """Of a split; most tests change one split only."""
    batch = ExamplesToRecordBatchDecoder().DecodeBatch(list(records))
    stats = stats_impl.generate_statistics_in_memory(batch, tfdv.StatsOptions())
    return stats.SerializeToString()


def write_records(path: pathlib.Path, records: Iterable[bytes]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


@pytest.fixture
def gate(tmp_path: pathlib.Path) -> Gate:
    return Gate(tmp_path)


def at(split: str, *indices: int, **changed: Values) -> Edit:
    """An edit of some examples of a split."""

    def edit(its_split: str, index: int, values: dict[str, Values]) -> None:
        if its_split == split and index in indices:
            values.update(changed)

    return edit


def test_good_data_passes(gate):
    gate.write()
    anomalies = gate.run()
    assert anomalies.get_int_custom_property("anomalies") == 0
    assert anomalies.splits == list(SPLITS)
    files = sorted(path for path in (gate.folder / "anomalies").rglob("*") if path.is_file())
    names = [str(path.relative_to(gate.folder / "anomalies")) for path in files]
    assert names == [f"Split-{split}/SchemaDiff.pb" for split in sorted(SPLITS)]
    for path in files:
        assert not anomalies_pb2.Anomalies.FromString(path.read_bytes()).anomaly_info


FIRST_OF_SECOND = r"record 1 \(from 0\) of .*/Split-val/data_tfrecord-00001-of-00002"
ID_61 = f"id 61, {FIRST_OF_SECOND}"


@pytest.mark.parametrize(
    ("changed", "expected", "found"),
    [
        ({"image": b"x" * 3071}, "3,072 bytes (32 x 32 x 3)", rf"\(3071 bytes\) .*{ID_61}"),
        ({"image": None}, "exactly one value", f"no value.* {ID_61}"),
        ({"image": []}, "exactly one value", "no value"),
        ({"image": [b"x" * 3072, b"y" * 3072]}, "exactly one value", rf"\(2 values\) is {ID_61}"),
        ({"label": 10}, "values from 0 to 9", rf"\(10\) is {ID_61}"),
        ({"label": -1}, "values from 0 to 9", r"\(-1\) is id 61"),
        ({"label": None}, "exactly one value", "no value"),
        ({"label": [1, 2, 3]}, "exactly one value", r"\(3 values\) is id 61, "),
        ({"id": -5}, "values from 0 to any", rf"\(-5\) is id -5, {FIRST_OF_SECOND}"),
        ({"id": None}, "exactly one value", f"is {FIRST_OF_SECOND}"),
        ({"id": [7, 8]}, "exactly one value", rf"\(2 values\) is {FIRST_OF_SECOND}"),
        ({"weight": 1}, "", r"New column"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_two_bad_examples(gate, changed, expected, found):
    gate.write(at("val", 21, 30, **changed))
    first, *others = gate.findings()
    assert (first.split, first.feature, first.expected) == ("val", *changed, expected)
    assert "2 of 40 examples" in first.found and re.search(found, first.found), first.found
    assert len(others) == (changed == {"id": -5})  # this id occurs twice


@pytest.mark.parametrize(
    ("changed", "expected", "found"),
    [
        ({"label": 1.0}, "integers (int64)", "FLOAT"),
        ({"label": b"cat"}, "integers (int64)", "STRING"),
        ({"image": 1}, "bytes", "INT"),
        ({"id": None}, "exactly one value", "no value"),
    ],
)
def test_a_whole_split(gate, changed, expected, found):
    gate.write(at("val", *range(PER_SPLIT), **changed))
    [finding] = gate.findings()
    assert (finding.split, finding.feature, finding.expected) == ("val", *changed, expected)
    assert "40 of 40 examples" in finding.found and found in finding.found


def test_an_example_of_eval_in_train(gate):
    gate.write(lambda split, index, v: v.update(id=index) if split == "eval" and index > 36 else 0)
    [finding] = gate.findings()
    assert (finding.split, finding.feature) == ("eval", "id")
    assert "3 of 40 examples" in finding.found and "id of train" in finding.found
    assert "id 37, record 17 (from 0)" in finding.found
    assert "Split-eval/data_tfrecord-00001-of-00002" in finding.found


def test_an_id_twice_in_a_split(gate):
    gate.write(at("train", 5, 6, id=3))
    [finding] = gate.findings()
    assert (finding.split, finding.feature, finding.expected) == ("train", "id", "unique ids")
    assert "2 of 40 examples" in finding.found and "id 3, record 5 (from 0)" in finding.found


def test_the_message_lists_up_to_ten_findings(gate):
    def edit(split: str, index: int, values: dict[str, Values]) -> None:
        values.update({f"new{number}": 1 for number in range(4)})

    gate.write(edit)
    error = gate.refuses()
    assert isinstance(error, AnomaliesError)
    assert [(finding.split, finding.feature) for finding in error.findings] == [
        (split, f"new{number}") for split in SPLITS for number in range(4)
    ]


def test_an_empty_split(gate):
    gate.write()
    for shard in (0, 1):
        write_records(gate.file("val", shard), [])
    gate.statistics()
    assert ("val", "") in {(each.split, each.feature) for each in gate.findings()}


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_corrupt_file_is_named(gate, damage):
    gate.write()
    path = gate.file("val", 1)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-100:]
    else:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)
    error = gate.refuses()
    assert (error.file, error.record) == (str(path), "19" if damage == "cut" else "10")


@pytest.mark.parametrize("content", [b"\xff" * 30, b"\x7f\x80 text"])
def test_a_record_that_is_no_example_is_named(gate, content):
    gate.write()
    records = list(tf.data.TFRecordDataset(str(gate.file("eval"))).as_numpy_iterator())
    write_records(gate.file("eval"), [*records[:7], content, *records[8:]])
    error = gate.refuses()
    assert (error.file, error.record) == (str(gate.file("eval")), "7")


def test_compressed_files_are_read(gate):
    gate.write(at("val", 21, label=10))
    for path in list(gate.folder.glob("examples/*/data*")):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    [finding] = gate.findings()
    assert "(10) is id 61, record 1 (from 0) of " in finding.found
    assert "data_tfrecord-00001-of-00002.gz" in finding.found


def test_a_split_without_statistics(gate):
    gate.write()
    gate.without_statistics = "val"
    assert gate.refuses().record == "val"


def test_the_schema_tells_the_size(gate, tmp_path):
    gate.write(lambda split, index, values: values.update(image=b"x" * 12))
    gate.schema = str(tmp_path / "own.pbtxt")
    text = pathlib.Path(features.DATASETS["cifar10"].schema_file).read_text()
    pathlib.Path(gate.schema).write_text(text.replace("32x32x3", "2x2x3"))
    gate.run()
    pathlib.Path(gate.schema).write_text(text.replace("32x32x3", "2x2"))
    with pytest.raises(UserError, match="image_shape=2x2") as caught:
        gate.run()
    assert (caught.value.record, caught.value.value) == ("image", "image_shape=2x2")


def test_a_schema_without_our_features(gate, tmp_path):
    gate.write(lambda split, index, values: (values.clear(), values.update(other=1)))
    gate.schema = str(tmp_path / "own.pbtxt")
    pathlib.Path(gate.schema).write_text('feature { name: "other" type: INT }')
    gate.run()


def test_a_limit_of_an_unknown_feature_is_refused(gate):
    gate.write()
    gate.limits = drift.Limits(features={"label": 0.5, "lable": 0.1})
    error = gate.refuses()
    assert (error.setting, error.value) == ("drift.features", "lable")
    assert error.suggestion == "'label'"


def test_the_component():
    gate = AnomalyGate(
        **{name: channel_utils.as_channel([kind()]) for name, kind in INPUTS.items()}
    )
    assert gate.id == "AnomalyGate"
    assert gate.outputs["anomalies"].type is standard_artifacts.ExampleAnomalies
    assert re.fullmatch("[0-9a-f]{16}", gate.exec_properties["code_fingerprint"])
