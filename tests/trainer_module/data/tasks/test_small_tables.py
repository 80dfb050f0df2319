"""Default settings on small tables: a model of a pattern is blessed, and one of noise is not."""

import random

import numpy as np
import pytest
import tensorflow as tf
from small_tables import trained

from stagecraft.components.evaluator.evaluation import ENOUGH


def houses(count):
    draw, towns = random.Random(0), {"Ulm": 1.0, "Bonn": 1.2, "Kiel": 0.8}
    for _ in range(count):
        area, rooms, town = draw.uniform(30, 250), draw.randint(1, 7), draw.choice(list(towns))
        price = 1e5 + 2500 * area * towns[town] + 9000 * rooms + draw.gauss(0, 30_000)
        yield {"area": area, "rooms": rooms, "town": town, "price": price}


def wine(count):
    """Eleven numbers, of scales from 0.002 to 45; a quality from 3 to 8."""
    draw = np.random.default_rng(0)
    scale = np.array([1.7, 0.18, 0.2, 1.4, 0.047, 10, 33, 0.0019, 0.15, 0.17, 1.1])
    for x in draw.normal(size=(count, 11)):
        quality = 5.6 + 0.45 * x[10] - 0.4 * x[1] + 0.25 * x[9] + draw.normal(0, 0.55)
        row = {f"x{n}": float(value) for n, value in enumerate(scale * (x + 5))}
        yield row | {"quality": int(np.clip(np.round(quality), 3, 8))}


def fares(count):
    draw = random.Random(0)
    for _ in range(count):
        miles, hour = draw.lognormvariate(1, 0.9), draw.randint(0, 23)
        seconds = int(miles * 180 * draw.uniform(0.7, 1.6))
        fare = 3.25 + 2.25 * miles + seconds / 144 + draw.gauss(0, 1.5)
        yield {"miles": miles, "seconds": seconds, "hour": hour, "fare": fare}


def scales(count):
    """Numbers of scales from 1e-3 to 1e6, and of labels 1e-2."""
    draw = np.random.default_rng(0)
    for x in draw.normal(size=(count, 6)):
        row = {f"x{n}": float(10.0 ** (2 * n - 3) * v) for n, v in enumerate(x[:5])}
        yield row | {"x5": float(1e6 * x[5]), "y": float(0.01 * (x[0] - 2 * x[1] + x[4] + x[5]))}


TABLES = {
    "houses": (houses, 200, {"town": {"kind": "vocabulary", "size": 20}}),
    "wine": (wine, 1000, {}),
    "fares": (fares, 200, {"hour": {"kind": "identity", "size": 24}}),
    "scales": (scales, 200, {}),
}


@pytest.mark.parametrize("name", [pytest.param("houses", marks=pytest.mark.slow), *(
    pytest.param(name, marks=pytest.mark.full)
    for name in ("wine", "fares", "scales")
)])  # fmt: skip
def test_a_pattern_is_blessed(name, tmp_path):
    make, count, kinds = TABLES[name]
    rows = list(make(count))
    *names, label = rows[0]
    features = {feature: kinds.get(feature, "numeric") for feature in names}
    found = trained(tmp_path, "regression", rows, {"features": features, "label": label})
    assert found.comparison.confidence >= ENOUGH, found
    assert found.metrics["r2"] > 0.2
    # The exported model predicts in the label's unit: its errors are those of the metrics.
    actual = np.array([row[label] for row in found.eval_rows], np.float32)
    columns = {feature: tf.constant([row[feature] for row in found.eval_rows]) for feature in names}
    columns = {k: tf.cast(v, tf.int64) if v.dtype == tf.int32 else v for k, v in columns.items()}
    predicted = found.model.signatures["serving_columns"](**columns)["prediction"].numpy()
    mse = ((predicted.astype(float) - actual) ** 2).mean()
    assert mse == pytest.approx(found.metrics["mse"], rel=1e-3)
    np.testing.assert_allclose(found.outputs["sampled_predicted"], predicted, rtol=1e-4)
    np.testing.assert_allclose(found.outputs["sampled_actual"], actual, rtol=1e-5, atol=1e-7)


def noise(task, count, share):
    draw = np.random.default_rng(1)
    for x in draw.normal(size=(count, 8)):
        first = draw.random() < share
        label = 1e5 + 3e4 * float(draw.normal()) if task == "regression" else int(not first)
        if task == "classification" and not first:
            label = int(draw.integers(1, 3))
        yield {f"x{n}": float(value) for n, value in enumerate(x)} | {"y": label}


SPLITS, MOST = 20, 4
"""One eval split of noise in twenty may have a confidence of 95 % by chance. More than four of
twenty have it with a probability of 0.0026, by the binomial distribution."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "share"),
    [
        ("regression", 0.5),
        pytest.param("binary_classification", 0.5, marks=pytest.mark.full),
        pytest.param("binary_classification", 0.9, marks=pytest.mark.full),
        pytest.param("classification", 0.5, marks=pytest.mark.full),
        pytest.param("classification", 0.9, marks=pytest.mark.full),
    ],
)
def test_noise_is_blessed_as_rarely_as_the_confidence_says(task, share, tmp_path):
    args = {"features": {f"x{n}": "numeric" for n in range(8)}, "label": "y"}
    if task == "classification":
        args["num_classes"] = 3
    rows = list(noise(task, 300 + SPLITS * 30, share))
    found = trained(tmp_path, task, rows[:300], args)
    assert np.isfinite(found.loss)
    splits = [rows[start : start + 30] for start in range(300, len(rows), 30)]
    blessed = sum(found.compare(split).confidence >= ENOUGH for split in splits)
    assert blessed <= MOST
    assert not found.compare(rows[300:]).confidence >= 0.999
