"""A canned model in one's own run_fn, and a model_fn: through Transform's graph to the export."""

from __future__ import annotations

import pathlib
import types
from typing import Any

import numpy as np
import pytest
from houses_task import serialized
from transformed import transformed

import stagecraft as sc
from stagecraft import named_objects
from stagecraft.trainer_module.training import record

E = sc.estimator
SCHEMA = "".join(
    f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1 }} '
    "shape { dim { size: 1 } } }\n"
    for name, kind in (("area", "FLOAT"), ("town", "BYTES"), ("price", "FLOAT"))
)
TOWN = E.Listed(["Ulm", "Bonn", "Kiel"])
PRICES = E.DNNLinearCombinedRegressor(
    linear_feature_columns={"town": TOWN},
    dnn_feature_columns={"area": E.Numeric()},
    dnn_hidden_units=[4, 4],
    label="price",
)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    import keras
    import tensorflow as tf

    price = keras.layers.Dense(1, name="head")(features["area"])[:, 0]
    if mode == E.ModeKeys.PREDICT:
        return E.EstimatorSpec(mode, predictions={"price": price})
    return E.EstimatorSpec(mode, loss=tf.reduce_mean((price - labels) ** 2))


FN = E.from_model_fn(model_fn, features={"area": E.Numeric()}, labels="price")


def rows(count: int) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    areas = draw.uniform(1, 2, count)
    towns = [TOWN.values[number] for number in draw.integers(0, 3, count)]
    return [
        {"area": float(area), "town": town, "price": float(area)}
        for area, town in zip(areas, towns, strict=True)
    ]


def fn_args(task: Any, folder: pathlib.Path) -> types.SimpleNamespace:
    import tensorflow as tf

    schema = folder / "schema.pbtxt"
    schema.write_text(SCHEMA)
    config = {"task": {"name": named_objects.put("task", task), "args": None}}
    named = types.SimpleNamespace(
        preprocessing_fn=task.preprocessing_fn, preprocessing_config=lambda _: config
    )
    lists = [{name: [value] for name, value in row.items()} for row in rows(40)]
    transformed(named, schema, lists, folder)
    files = {}
    for split, count in (("train", 40), ("eval", 10)):
        files[split] = str(folder / split)
        with tf.io.TFRecordWriter(files[split]) as writer:
            for row in rows(count):
                writer.write(serialized(row))
    return types.SimpleNamespace(
        train_files=[files["train"]],
        eval_files=[files["eval"]],
        transform_graph_path=str(folder / "graph"),
        schema_path=str(schema),
        serving_model_dir=str(folder / "serving"),
        model_run_dir=str(folder / "run"),
        custom_config=None,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("found", "more", "output"),
    [(PRICES, PRICES.train_settings, "predictions"), (FN, {"optimizer": "sgd"}, "price")],
    ids=["canned", "model_fn"],
)
def test_it_trains_and_predicts(found, more, output, tmp_path):
    import tensorflow as tf

    passed = fn_args(found.task, tmp_path)
    sc.train(passed, task=found.task, model=found.model, steps=20, batch_size=10, **more)
    notes = record.read(passed.model_run_dir)
    assert notes["steps"] == 20
    signature = tf.saved_model.load(passed.serving_model_dir).signatures["serving_default"]
    request = [serialized({key: row[key] for key in ("area", "town")}) for row in rows(3)]
    predicted = signature(examples=tf.constant(request))[output]
    assert np.isfinite(predicted).all() and len(predicted) == 3
