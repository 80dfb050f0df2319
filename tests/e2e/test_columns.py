"""The settings of the page on a user's own data, from a file to the answers of the pushed model."""

import csv
import datetime
import pathlib
import random
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from support import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "docs"))

from snippets import snippets  # noqa: E402

pytestmark = pytest.mark.slow

PAGE = {each.title: each.text for each in snippets((ROOT / "docs/how-to/own-data.md").read_text())}
ROWS = 1500
START = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
REGIONS = {"Île-de-France": 0.0, "Bretagne": 30.0}
TAGS = {"neu": 20.0, "größe": -20.0, "🎁": 5.0}


def trained(folder, name):
    """Runs the settings of the page; returns the pushed model and the metrics."""
    (folder / name).write_text(PAGE[name])
    done = run(folder / "out", "--config", name, settings=(), cwd=folder)
    assert done.result["blessed"], done.result
    [version] = (folder / "out" / "serving").iterdir()
    return tf.saved_model.load(str(version)), version, done.result["metrics"]


def example(**features):
    made = tf.train.Example()
    for name, values in features.items():
        kind = {str: "bytes_list", int: "int64_list", float: "float_list"}[type(values[0])]
        values = [each.encode() if isinstance(each, str) else each for each in values]
        getattr(made.features.feature[name], kind).value.extend(values)
    return made.SerializeToString()


def write_orders(path):
    """Rows whose price their columns determine."""
    draw = random.Random(0)
    rows = []
    for _ in range(ROWS):
        day = START + datetime.timedelta(days=draw.randrange(700))
        paid = day + datetime.timedelta(hours=draw.randrange(24), seconds=5)
        row = {
            "région": draw.choice([*REGIONS]),
            "opened on": day.strftime("%d.%m.%Y") if draw.random() < 0.95 else None,
            "paid at": paid,
            "a/b": draw.uniform(-1, 1),
            "tags": draw.sample([*TAGS], draw.randrange(3)),
            "colors": ";".join(draw.sample(["red", "green", "blue"], draw.randrange(3))),
            "last prices": [draw.uniform(0, 1) for _ in range(draw.randrange(7))],
        }
        price = REGIONS[row["région"]] + 10 * row["a/b"] + sum(TAGS[each] for each in row["tags"])
        price += 15 * ("red" in row["colors"]) + 20 * (paid.hour >= 12)
        price += 25 * (row["opened on"] is not None and day.weekday() >= 5)
        price += 20 * (row["last prices"] or [0.5])[-1]
        rows.append(row | {"prix (€)": price})
    stamp = pa.timestamp("us", "UTC")
    fields = [("paid at", stamp), ("tags", pa.list_(pa.string())), ("a/b", pa.float64())]
    fields += [("last prices", pa.list_(pa.float64())), ("prix (€)", pa.float64())]
    fields += [(name, pa.string()) for name in ("région", "opened on", "colors")]
    path.mkdir()
    pa.parquet.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path / "1.parquet")


def test_odd_names_dates_and_lists(tmp_path):
    write_orders(tmp_path / "orders")
    model, version, metrics = trained(tmp_path, "orders.yaml")
    assert metrics["r2"] > 0.9
    noon = START + datetime.timedelta(days=100, hours=12)  # a Wednesday
    micros = int(noon.timestamp() * 1e6)
    requests = [
        {"tags": ["neu"]},
        {"tags": []},
        {"tags": ["neu", "🎁", "unseen"], "opened on": ["13.04.2024"]},
        {"opened on": [], "colors": ["red;blue"], "last prices": []},
    ]
    usual = {"région": ["Bretagne"], "opened on": ["10.04.2024"], "paid at": [micros]}
    usual |= {"a/b": [0.0], "tags": [], "colors": ["green"], "last prices": [0.5, 0.5, 0.5, 1.0]}
    rows = [{**usual, **each} for each in requests]
    records = [example(**{k: v for k, v in row.items() if v}) for row in rows]
    found = model.signatures["serving_default"](tf.constant(records))["prediction"].numpy()
    spread = 35  # deviation of the price
    assert abs(found[0] - found[1] - 20) < spread / 3
    assert abs(found[2] - found[0] - 30) < spread / 3
    assert np.isfinite(found).all()

    width = {"tags": 3, "last prices": 4}
    columns = {}
    for name in usual:
        if name in width:
            absent = "" if name == "tags" else np.nan
            values = [[*row[name], *[absent] * (width[name] - len(row[name]))] for row in rows]
        else:
            values = [row[name][0] if row[name] else "" for row in rows]
        dtype = tf.int64 if name == "paid at" else None
        columns[name] = tf.constant(values, tf.float32 if name == "a/b" else dtype)
    columns["last prices"] = tf.cast(columns["last prices"], tf.float32)
    by_name = model.signatures["serving_columns"](**columns)["prediction"].numpy()
    np.testing.assert_allclose(by_name, found, rtol=1e-5)

    # What TensorFlow Serving reads.
    saved = tf.compat.v1.Session(graph=tf.Graph())
    graph = tf.compat.v1.saved_model.load(saved, ["serve"], str(version))
    signature = graph.signature_def["serving_columns"]
    assert set(signature.inputs) == set(usual)
    feed = {signature.inputs[name].name: value.numpy() for name, value in columns.items()}
    served = saved.run(signature.outputs["prediction"].name, feed)
    np.testing.assert_allclose(served, found, rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="opened on"):
        wrong = example(**{k: v for k, v in {**usual, "opened on": ["2024-04-10"]}.items() if v})
        model.signatures["serving_default"](tf.constant([wrong]))


def test_several_labels(tmp_path):
    draw = random.Random(0)
    with open(tmp_path / "articles.csv", "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["words", "author", "topics"])
        for _ in range(ROWS):
            words, author = draw.randrange(1000), draw.choice("abc")
            topics = ["news"] * (words < 400) + ["sport"] * (author == "b")
            topics += ["science"] * (words > 600 and author == "c")
            writer.writerow([words, author, ";".join(topics)])
    model, _, metrics = trained(tmp_path, "articles.yaml")
    assert metrics["f1"] > 0.9 and metrics["accuracy"] > 0.9
    ask = model.signatures["serving_columns"]
    found = ask(words=tf.constant([50, 900], tf.int64), author=tf.constant(["b", "c"]))
    assert found["label_names"].numpy().tolist() == [[b"news", b"sport", b"science"]] * 2
    assert found["predicted"].numpy().tolist() == [[1, 1, 0], [0, 0, 1]]


def test_sequence_examples(tmp_path):
    draw = random.Random(0)
    (tmp_path / "visits").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "visits" / "1.tfrecord")) as writer:
        for _ in range(ROWS):
            made = tf.train.SequenceExample()
            steps = draw.randrange(8)
            pages = [draw.choice(["home", "cart", "help"]) for _ in range(steps)]
            seconds = [draw.uniform(0, 10) for _ in range(steps)]
            context = made.context.feature
            context["age"].int64_list.value.append(draw.randrange(18, 80))
            context["bought"].int64_list.value.append(int(pages[-1:] == ["cart"]))
            lists = made.feature_lists.feature_list
            for page, time in zip(pages, seconds, strict=True):
                lists["pages"].feature.add().bytes_list.value.append(page.encode())
                lists["seconds"].feature.add().float_list.value.append(time)
            writer.write(made.SerializeToString())
    model, _, metrics = trained(tmp_path, "visits.yaml")
    assert metrics["auc"] > 0.9
    records = [
        example(age=[30], pages=["help"] * 9 + ["cart"], seconds=[1.0] * 10),
        example(age=[30], pages=["cart", "help"], seconds=[1.0, 2.0]),
        example(age=[30]),
    ]
    found = model.signatures["serving_default"](tf.constant(records))["class_id"].numpy()
    assert found.tolist() == [1, 0, 0]


@pytest.mark.full
def test_windows_over_a_time_series(tmp_path):
    draw = random.Random(0)
    with open(tmp_path / "sales.csv", "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["day", "shop", "sold", "weather"])
        rows = [
            [(START + datetime.timedelta(days=day)).date(), shop, day % 7 * 10 + level, weather]
            for day in range(600)
            for shop, level in (("north", 0.5), ("south", 100.5))
            for weather in draw.choices(["sun", "rain"])
        ]
        draw.shuffle(rows)
        writer.writerows(rows)
    model, _, metrics = trained(tmp_path, "sales.yaml")
    assert metrics["r2"] > 0.95
    [examples] = (tmp_path / "out" / "pipeline_root" / "ExampleGen" / "examples").iterdir()
    days = {}
    for split in ("train", "val", "eval"):
        files = sorted(map(str, (examples / f"Split-{split}").iterdir()))
        records = tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()
        made = [tf.train.Example.FromString(each).features.feature for each in records]
        days[split] = sorted(each["day"].bytes_list.value[0].decode() for each in made)
    assert days["train"][-1] < days["val"][0] and days["val"][-1] < days["eval"][0]
    assert 0.08 < len(days["eval"]) / sum(map(len, days.values())) < 0.12
    shutil.rmtree(examples)
    week = [[float(each % 7 * 10) + 100.5 for each in range(first, first + 7)] for first in (3, 5)]
    found = model.signatures["serving_columns"](
        sold=tf.constant(week),
        weather=tf.constant([["sun"] * 7] * 2),
        day=tf.constant(["2025-08-20", "2025-08-22"]),
        shop=tf.constant(["south", "south"]),
    )["prediction"].numpy()
    np.testing.assert_allclose(found, [130.5, 150.5], atol=15)
