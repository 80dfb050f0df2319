"""The page on a user's own task: its files train a model that predicts in plain TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
from reading import ROOT, Reader
from snippets import snippets

PAGE = ROOT / "docs" / "how-to" / "own-task.md"


@pytest.mark.full
def test_a_csv_becomes_a_model(reader: Reader):
    reader.read(PAGE)
    runs = reader.folder / "runs"
    (model,) = runs.glob("houses/pipeline_root/Trainer/model/*/Format-Serving")
    predict = tf.saved_model.load(str(model)).signatures["serving_columns"]
    found = predict(
        area=tf.constant([100.0, 100.0, np.nan]),
        rooms=tf.constant([3, 3, 3], tf.int64),
        town=tf.constant(["Bonn", "Kiel", ""]),
    )["prediction"]
    np.testing.assert_allclose(found[:2], [460, 360], atol=30)
    assert np.isfinite(found[2])


def test_it_is_as_short_as_it_says():
    files = {found.title: found.text for found in snippets(PAGE.read_text())}
    assert len(files["houses.py"].splitlines()) <= 32
    assert len(files["houses.yaml"].splitlines()) <= 10
