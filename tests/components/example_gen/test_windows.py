"""Windows over time series, from CSV, Parquet and Avro; tf.SequenceExamples."""

import csv
import datetime
import math

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from example_gens import examples, values
from tfx.proto import example_gen_pb2

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen import named
from stagecraft.components.example_gen.kinds import sequences, windows
from stagecraft.components.example_gen.sample import to_example

SPLITS = example_gen_pb2.Output(
    split_config={
        "splits": [
            {"name": name, "hash_buckets": share}
            for name, share in (("train", 6), ("val", 2), ("eval", 2))
        ]
    }
)
WINDOWS = "stagecraft.components.WindowExampleGen"
ARGUMENTS = {"time": "day", "label": "sold", "length": 3, "series": ["shop"]}
ROWS = [
    {"day": day, "shop": shop, "sold": None if day == 5 else day + start, "note": f"{shop}{day}"}
    for shop, start in (("b", 100.5), ("a", 0.5))
    for day in reversed(range(20))
]


def write_csv(path):
    with open(path, "w", newline="") as stream:
        writer = csv.DictWriter(stream, ["day", "shop", "sold", "note"])
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(path):
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), path)


def write_avro(path):
    kinds = {"day": "long", "shop": "string", "sold": ["null", "double"], "note": "string"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    with open(path, "wb") as stream:
        fastavro.writer(stream, {"type": "record", "name": "row", "fields": fields}, ROWS)


def made(tmp_path, arguments, write=write_csv):
    (tmp_path / "data").mkdir(exist_ok=True)
    write(tmp_path / "data" / "rows")
    component = named.make(WINDOWS, arguments, str(tmp_path / "data"), SPLITS)
    return examples(component, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_csv, write_parquet, write_avro])
def test_windows_follow_each_other(write, tmp_path):
    splits = made(tmp_path, ARGUMENTS, write)
    order = {}
    for split, found in splits.items():
        for each in found:
            [day], [shop] = values(each, "day")[1], values(each, "shop")[1]
            start = {b"a": 0.5, b"b": 100.5}[shop]
            past = [np.nan if d == 5 else d + start for d in range(day - 2, day + 1)]
            np.testing.assert_array_equal(values(each, "sold")[1], past)
            notes = [shop + b"%d" % d for d in range(day - 2, day + 1)]
            assert values(each, "note") == ("bytes_list", notes)
            assert values(each, "sold_next") == ("float_list", [day + 1 + start])
            order.setdefault(split, []).append((day, shop))
    # A window whose label is missing is none: that of day 4.
    days = [day for day in range(2, 19) if day != 4]
    found = sorted(each for split in order.values() for each in split)
    assert found == [(day, shop) for day in days for shop in (b"a", b"b")]
    assert [max(order[split])[0] for split in ("train", "val")] == [12, 15]
    assert [min(order[split])[0] for split in ("val", "eval")] == [13, 16]


@pytest.mark.slow
def test_stride_and_horizon(tmp_path):
    splits = made(tmp_path, ARGUMENTS | {"stride": 5, "horizon": 2, "label": "note"})
    found = [each for split in splits.values() for each in split]
    pairs = sorted((values(e, "day")[1][0], values(e, "note_next")[1][0]) for e in found)
    assert pairs[::2] == [(2, b"a4"), (7, b"a9"), (12, b"a14"), (17, b"a19")]


@pytest.mark.slow
def test_input_splits_keep_their_files(tmp_path):
    for name in ("early", "late"):
        (tmp_path / "data" / name).mkdir(parents=True)
        write_csv(tmp_path / "data" / name / "rows")
    splits = [{"name": name, "pattern": f"{name}/*"} for name in ("early", "late")]
    arguments = ARGUMENTS | {"input_config": {"splits": splits}}
    wanted = example_gen_pb2.Output()
    component = named.make(WINDOWS, arguments, str(tmp_path / "data"), wanted)
    found = examples(component, tmp_path)
    assert {name: len(each) for name, each in found.items()} == {"early": 32, "late": 32}


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"time": ""}, None),
        ({"length": 1}, None),
        ({"horizon": 0}, None),
        ({"stride": "1"}, None),
        ({"series": "shop"}, None),
        ({"series": ["day"]}, None),
        ({"last": "note"}, None),
        ({"last": ["weight"]}, "last"),
        ({"time": "date"}, "time"),
        ({"label": "price"}, "label"),
        ({"series": ["shop", "town"]}, "series"),
    ],
)
def test_wrong_arguments(change, setting, tmp_path):
    with pytest.raises(SettingError) as caught:
        made(tmp_path, ARGUMENTS | change)
    wanted = f"data.example_gen_args.{setting}" if setting else "data.example_gen_args"
    assert caught.value.setting == wanted


def serialized(**row):
    return to_example({"shop": "a", "sold": 1.0, **row}).SerializeToString()


SOON = serialized(day="2024-01-31")


@pytest.mark.parametrize(
    ("rows", "time_format", "setting", "record"),
    [
        ([serialized(day="31.01.2024")], None, "time_format", "day"),
        ([SOON], "%d.%m.%Y", "time_format", "day"),
        ([serialized()], None, "time_format", "day"),
        ([serialized(day=math.nan)], None, "time_format", "day"),
        ([SOON, SOON], None, "series", "day"),
        ([serialized(day=n, note=[7] * (n != 1)) for n in range(9)], None, "", "note"),
        ([serialized(day=n, note=[7, 8]) for n in range(9)], None, "", "note"),
    ],
)
def test_rows_that_do_not_fit(rows, time_format, setting, record):
    given = windows._Windows("day", "sold", 3, 1, 1, [], time_format)
    with pytest.raises(UserError) as caught:
        list(windows._windows(given, b"", rows))
    assert caught.value.setting == (setting and f"data.example_gen_args.{setting}")
    assert caught.value.record == record


def test_columns_of_the_last_row():
    """In UTC as Python 3.10 does not read it."""
    given = windows._Windows("day", "sold", 2, 1, 1, [], None, ["weight", "shop"])
    rows = [serialized(day=f"2024-01-0{n}T00:00:00Z", weight=float(n)) for n in (1, 2, 3)]
    [(time, found)] = windows._windows(given, b"", rows)
    assert time == datetime.datetime(2024, 1, 3, tzinfo=datetime.timezone.utc).timestamp()
    assert values(found, "weight") == ("float_list", [2])
    assert values(found, "shop") == ("bytes_list", [b"a"])
    assert values(found, "sold")[1] == [1, 1]


@pytest.mark.parametrize("shares", [[6, 2, 2], [1, 1], [800, 100, 100], [1, 0, 1], [3]])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
def test_the_share_of_each_split(shares, count):
    starts = windows._starts(list(range(count))[::-1], shares)
    found = [windows._part((time, None), len(shares), starts) for time in range(count)]
    assert found == sorted(found)
    ends = [sum(shares[: n + 1]) for n in range(len(shares))]
    for part in range(len(shares)):
        before = sum(each <= part for each in found)
        assert 0 <= before - ends[part] * count / ends[-1] < 1


def test_a_column_with_the_name_of_the_feature_to_predict(tmp_path):
    def write(path):
        path.write_text("day,sold,sold_next\n1,2,3\n")

    with pytest.raises(SettingError) as caught:
        made(tmp_path, {"time": "day", "label": "sold", "length": 3}, write)
    assert caught.value.setting == "data.example_gen_args.label"


def test_files_of_several_formats(tmp_path):
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "more")
    with pytest.raises(UserError) as caught:
        made(tmp_path, ARGUMENTS)
    assert caught.value.file


def sequence(context, lists):
    given = tf.train.SequenceExample()
    for name, value in context.items():
        given.context.feature[name].int64_list.value.append(value)
    for name, steps in lists.items():
        given.feature_lists.feature_list[name].SetInParent()
        for step in steps:
            feature = given.feature_lists.feature_list[name].feature.add()
            if step and isinstance(step[0], bytes):
                feature.bytes_list.value.extend(step)
            elif step and isinstance(step[0], int):
                feature.int64_list.value.extend(step)
            elif step:
                feature.float_list.value.extend(step)
    return given.SerializeToString()


def test_steps_become_values():
    lists = {
        "words": [[b"a"], [], [b"c"]],
        "points": [[1.0, 2.0], [3.0, 4.0]],
        "ids": [[1], [2]],
        "none": [],
    }
    found = sequences.example("f", sequence({"age": 5}, lists))
    assert values(found, "age") == ("int64_list", [5])
    assert values(found, "words") == ("bytes_list", [b"a", b"", b"c"])
    assert values(found, "points") == ("float_list", [1, 2, 3, 4])
    assert values(found, "ids") == ("int64_list", [1, 2])
    assert values(found, "none") is None


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (sequence({"a": 1}, {"a": [[1]]}), "a"),
        (sequence({}, {"a": [[1], [2.0]]}), "a"),
        (sequence({}, {"a": [[1, 2], [3]]}), "a"),
        (sequence({}, {"a": [[1], []]}), "a"),
        (b"no example", ""),
    ],
)
def test_steps_that_no_feature_holds(record, name):
    with pytest.raises(UserError) as caught:
        sequences.example("file", record)
    assert (caught.value.file, caught.value.record) == ("file", name)


@pytest.mark.slow
def test_sequence_examples_of_a_file(tmp_path):
    """The components after ImportExampleGen would not read them."""
    (tmp_path / "data").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "data" / "rows")) as writer:
        for number in range(30):
            writer.write(sequence({"n": number}, {"steps": [[1.0]] * (number % 4)}))
    arguments = {"payload_format": "FORMAT_TF_SEQUENCE_EXAMPLE"}
    component = "tfx.components.ImportExampleGen"
    made = named.make(component, arguments, str(tmp_path / "data"), SPLITS)
    found = [each for split in examples(made, tmp_path).values() for each in split]
    lengths = {values(e, "n")[1][0]: len((values(e, "steps") or [0, []])[1]) for e in found}
    assert lengths == {number: number % 4 for number in range(30)}
