"""Parquet, Avro and CSV files keep zeros, types, dates, decimals and nulls, or are refused."""

import csv
import datetime
import decimal

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from example_gens import examples, values
from tfx.components import CsvExampleGen
from tfx.proto import example_gen_pb2

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen import named
from stagecraft.components.example_gen.kinds import checked_csv, columns

SPLITS = example_gen_pb2.Output(
    split_config={
        "splits": [{"name": "train", "hash_buckets": 1}, {"name": "val", "hash_buckets": 1}]
    }
)
PARQUET, AVRO = "stagecraft.components.ParquetExampleGen", "stagecraft.components.AvroExampleGen"
CSV = "tfx.components.CsvExampleGen"
UTC = datetime.timezone.utc
LONG = "ä" * 10_000


# Arrow type, Avro type, values in the file, kind of the feature, its values.
COLUMNS = {
    "whole": (pa.int64(), "long", [0, 7, -(2**53), 2**53], "int64_list", None),
    "small": (pa.int32(), "int", [0, -1, 5], "int64_list", None),
    "number": (pa.float64(), "double", [0.0, 1.5, np.inf, -np.inf], "float_list", None),
    "single": (pa.float32(), "float", [0.0, -2.5, 2.0**53], "float_list", None),
    "flag": (pa.bool_(), "boolean", [False, True], "int64_list", [0, 1]),
    "text": (pa.string(), "string", ["", "a\nb", "\r", LONG], "bytes_list", None),
    "raw": (pa.binary(), "bytes", [b"", b"\xff\x00"], "bytes_list", None),
    "day": (
        pa.date32(),
        {"type": "int", "logicalType": "date"},
        [datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)],
        "int64_list",
        [0, 19782, -1],
    ),
    "moment": (
        pa.timestamp("ms", "UTC"),
        {"type": "long", "logicalType": "timestamp-millis"},
        [datetime.datetime(1970, 1, 1, tzinfo=UTC), datetime.datetime(2024, 2, 29, 1, tzinfo=UTC)],
        "int64_list",
        [0, (19782 * 24 + 1) * 3600 * 10**6],
    ),
    "clock": (
        pa.time64("us"),
        {"type": "long", "logicalType": "time-micros"},
        [datetime.time(0), datetime.time(0, 0, 1, 5)],
        "int64_list",
        [0, 1_000_005],
    ),
    "price": (
        pa.decimal128(9, 2),
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        [decimal.Decimal("0.00"), decimal.Decimal("12.50")],
        "float_list",
        [0.0, 12.5],
    ),
    "count": (
        pa.decimal128(18, 0),
        {"type": "bytes", "logicalType": "decimal", "precision": 18},
        [decimal.Decimal(0), decimal.Decimal(2**53 + 1)],
        "int64_list",
        [0, 2**53 + 1],
    ),
    "several": (
        pa.list_(pa.int64()),
        {"type": "array", "items": "long"},
        [[0, 1], []],
        "int64_list",
        [[0, 1], []],
    ),
}


def rows():
    """Each column runs through its values, then a null, over and over."""
    count = 3 * 7
    for number in range(count):
        row = {"id": number}
        for name, (_, _, given, _, _) in COLUMNS.items():
            row[name] = [*given, None][number % (len(given) + 1)]
        yield row


def expected(name, number):
    given, kind, written = COLUMNS[name][2:]
    written = given if written is None else written
    value = [*written, None][number % (len(written) + 1)]
    if value is None:
        return None
    value = value if isinstance(value, list) else [value]
    return kind, [each.encode() if isinstance(each, str) else each for each in value]


def write_parquet(path, given):
    kinds = [("id", pa.int64()), *((name, column[0]) for name, column in COLUMNS.items())]
    table = pa.Table.from_pylist(list(given), pa.schema(kinds))
    pa.parquet.write_table(table, path, row_group_size=5)


def write_avro(path, given):
    fields = [{"name": "id", "type": "long"}]
    fields += [{"name": k, "type": ["null", column[1]]} for k, column in COLUMNS.items()]
    schema = {"type": "record", "name": "row", "fields": fields}
    with open(path, "wb") as stream:
        fastavro.writer(stream, schema, given)


@pytest.mark.parametrize(("path", "write"), [(PARQUET, write_parquet), (AVRO, write_avro)])
def test_a_file_keeps_what_it_has(path, write, tmp_path):
    (tmp_path / "data").mkdir()
    given = list(rows())
    write(tmp_path / "data" / "one", given[:10])
    write(tmp_path / "data" / "two", given[10:])
    splits = examples(named.make(path, {}, str(tmp_path / "data"), SPLITS), tmp_path)
    assert set(splits) == {"train", "val"} and all(splits.values())
    found = {values(each, "id")[1][0]: each for split in splits.values() for each in split}
    assert sorted(found) == list(range(len(given)))
    for number, example in found.items():
        for name in COLUMNS:
            assert values(example, name) == expected(name, number), (name, number)


def test_nan_stays_nan_and_splits_do_not_depend_on_the_run(tmp_path):
    """What NaN means is Transform's business, not that of a file."""
    (tmp_path / "data").mkdir()
    numbers = [float("nan"), *map(float, range(40))]
    table = pa.table({"x": numbers, "y": [0.5] * 41, "z": ["a"] * 41})
    pa.parquet.write_table(table, tmp_path / "data" / "x.parquet")
    made = named.make(PARQUET, {}, str(tmp_path / "data"), SPLITS)
    first, second = (examples(made, tmp_path / name) for name in ("a", "b"))
    order = {split: sorted(str(each) for each in found) for split, found in first.items()}
    assert order == {split: sorted(str(each) for each in found) for split, found in second.items()}
    found = [values(each, "x")[1][0] for split in first.values() for each in split]
    assert np.isnan(found).sum() == 1 and np.nansum(found) == 780


REFUSED = {
    "unsigned": pa.array([2**63], pa.uint64()),
    "decimal": pa.array([decimal.Decimal(10**20)], pa.decimal128(30, 0)),
    "nested": pa.array([{"a": 1}]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "huge": pa.array([1e300]),
    "null_in_list": pa.array([[1, None]]),
    "list_of_lists": pa.array([[[1]]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_column_that_no_feature_holds_is_refused(name):
    batch = pa.RecordBatch.from_arrays([pa.array([1]), REFUSED[name]], ["n", name])
    with pytest.raises(UserError) as caught:
        list(columns.examples(batch, "data.parquet"))
    assert (caught.value.file, caught.value.record) == ("data.parquet", name)
    assert caught.value.value == str(REFUSED[name].type)


@pytest.mark.parametrize("kind", [pa.timestamp("ns", "UTC"), pa.duration("ns"), pa.time64("ns")])
def test_the_rest_of_a_microsecond_is_dropped(kind):
    batch = pa.RecordBatch.from_arrays([pa.array([1500, 2000], pa.int64()).cast(kind)], ["when"])
    found = [values(each, "when")[1] for each in columns.examples(batch, "data.parquet")]
    assert found == [[1], [2]]


def parquet(path, **arrays):
    pa.parquet.write_table(pa.table(arrays), path)


def twice(path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pa.parquet.write_table(table, path)


def broken_avro(path):
    write_avro(path, list(rows()))
    path.write_bytes(path.read_bytes()[:-40])


def avro_of(kind):
    schema = {"type": "record", "name": "row", "fields": [{"name": "a", "type": kind}]}

    def write(path):
        with open(path, "wb") as stream:
            fastavro.writer(stream, schema, [])

    return write


def cut(path):
    parquet(path, a=[1, 2, 3])
    path.write_bytes(path.read_bytes()[:-5])


FILES = {
    "no_parquet": (PARQUET, lambda path: path.write_text("a,b\n1,2\n"), ""),
    "cut_parquet": (PARQUET, cut, ""),
    "two_columns_of_one_name": (PARQUET, twice, "a"),
    "no_avro": (AVRO, lambda path: path.write_text("a,b\n1,2\n"), ""),
    "empty_avro": (AVRO, lambda path: path.write_bytes(b""), ""),
    "no_records": (AVRO, lambda path: fastavro.writer(path.open("wb"), "int", [1]), ""),
    "union": (AVRO, avro_of(["int", "string"]), "a"),
    "record_in_record": (
        AVRO,
        avro_of({"type": "record", "name": "b", "fields": [{"name": "c", "type": "int"}]}),
        "a",
    ),
    "csv_header": (CSV, lambda path: path.write_text('a,b,"a"\n1,2,3\n'), "a"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_is_refused(name, tmp_path):
    component, write, record = FILES[name]
    file = tmp_path / "data" / "one"
    file.parent.mkdir()
    write(file)
    made = named.make(component, {}, str(tmp_path / "data"), SPLITS)
    with pytest.raises(UserError) as caught:
        examples(made, tmp_path)
    assert (caught.value.file, caught.value.record) == (str(file), record)


def test_damage_behind_the_header_names_the_file(tmp_path):
    file = tmp_path / "data" / "one"
    file.parent.mkdir()
    broken_avro(file)
    made = named.make(AVRO, {}, str(file), SPLITS)
    with pytest.raises(Exception, match=str(file)):  # of a worker: Beam keeps the text alone
        examples(made, tmp_path)


@pytest.mark.parametrize(
    ("second", "record"),
    [({"a": [1.5]}, "a"), ({"b": [1]}, "a"), ({"a": [1], "b": ["x"]}, "b")],
)
def test_files_with_other_columns_are_refused(second, record, tmp_path):
    parquet(tmp_path / "1", a=[1])
    parquet(tmp_path / "2", a=pa.array([None], pa.null()))
    parquet(tmp_path / "3", **second)
    with pytest.raises(UserError) as caught:
        columns.check_same(
            {
                path.name: columns.features(pa.parquet.read_schema(path), path.name)
                for path in sorted(tmp_path.iterdir())
            }
        )
    assert (caught.value.file, caught.value.record) == ("3", record)


def test_no_file(tmp_path):
    made = named.make(PARQUET, {}, str(tmp_path), SPLITS)
    with pytest.raises(UserError) as caught:
        examples(made, tmp_path)
    assert caught.value.file == str(tmp_path / "*")


TFX = "tfx.components.example_gen.custom_executors"
FILES_GEN = "tfx.components.example_gen.component.FileBasedExampleGen"


@pytest.mark.parametrize(("kind", "write"), [("parquet", write_parquet), ("avro", write_avro)])
def test_the_executors_of_tfx_lose_nothing(kind, write, tmp_path):
    """Theirs write 0, False and empty texts as missing values; ours stand in their place."""
    (tmp_path / "data").mkdir()
    given = list(rows())
    write(tmp_path / "data" / "one", given)
    arguments = {"custom_executor_spec": f"{TFX}.{kind}_executor.Executor"}
    splits = examples(named.make(FILES_GEN, arguments, str(tmp_path / "data"), SPLITS), tmp_path)
    found = {values(each, "id")[1][0]: each for split in splits.values() for each in split}
    for number, example in found.items():
        for name in COLUMNS:
            assert values(example, name) == expected(name, number), (name, number)


def test_a_class_from_an_executor_of_tfx_is_refused(monkeypatch):
    from tfx.components.example_gen.custom_executors import parquet_executor

    class Executor(parquet_executor.Executor):
        pass

    monkeypatch.setattr(columns, "Executor", Executor, raising=False)
    arguments = {"custom_executor_spec": f"{columns.__name__}.Executor"}
    with pytest.raises(SettingError) as caught:
        named.make(FILES_GEN, arguments, "/data", SPLITS)
    assert caught.value.setting == "data.example_gen_args.custom_executor_spec"


def test_a_csv_file_keeps_line_breaks_and_empty_cells(tmp_path):
    file = tmp_path / "data" / "one.csv"
    file.parent.mkdir()
    with open(file, "w", newline="") as stream:
        csv.writer(stream).writerows([["a", "b"], ["x\ny", 0], ["", 1], ["z", ""]])
    made = named.make(CSV, {}, str(file), SPLITS)
    assert isinstance(made, CsvExampleGen) and isinstance(made, checked_csv.CsvExampleGen)
    found = [each for split in examples(made, tmp_path).values() for each in split]
    pairs = {(str(values(each, "a")[1]), str(values(each, "b")[1])) for each in found}
    assert pairs == {("[b'x\\ny']", "[0]"), ("[]", "[1]"), ("[b'z']", "[]")}
