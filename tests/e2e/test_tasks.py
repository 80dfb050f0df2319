"""Each task on its sample, or on files of the user's, from data to the exported model."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from support import run

SMALL = ("data.shards=2", "train.batch_size=32", "train.eval_every=1000")


def trained(output: pathlib.Path) -> tuple[dict[str, float], pathlib.Path]:
    """The best evaluation of a run, and the exported model."""
    [record] = output.glob("pipeline_root/Trainer/model_run/*/record.json")
    [model] = output.glob("pipeline_root/Trainer/model/*/Format-Serving")
    return json.loads(record.read_text())["best"], model


@pytest.mark.full
@pytest.mark.slow
def test_a_language_model_learns_and_continues_a_prompt(tmp_path):
    settings = ("data.sample_train=2000", "data.sample_test=200", "train.steps=120", *SMALL)
    done = run(tmp_path, "--config", "language_model", "--to", "Trainer", settings=settings)
    assert done.code == 0, done.stderr[-3000:]
    best, model = trained(tmp_path)
    assert 1 < best["perplexity"] < 8  # of a uniform guess: the size of the vocabulary, 64
    found = tf.saved_model.load(str(model)).signatures["continue_text"](
        prompts=tf.constant(["the small "]),
        temperature=tf.constant(0.0),
        seed=tf.constant(0, tf.int64),
    )
    assert len(found["continuations"].numpy()[0]) == 64


@pytest.mark.slow
def test_a_folder_of_pictures(tmp_path):
    draw = np.random.default_rng(0)
    for number in range(120):
        bright = number % 2
        path = tmp_path / "photos" / ("dark", "bright")[bright] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 128 * (1 + bright), (28, 24), np.uint8)
        Image.fromarray(pixels).save(path)
    settings = (
        *SMALL,
        f"data.source={tmp_path / 'photos'}",
        f"data.cache_dir={tmp_path / 'cache'}",
        "data.val_fraction=0.2",
        "train.steps=20",
    )
    done = run(
        tmp_path / "out", "--config", "image_classification", "--to", "Trainer", settings=settings
    )
    assert done.code == 0, done.stderr[-3000:]
    best, model = trained(tmp_path / "out")
    assert best["accuracy"] > 0.8
    images = np.stack([draw.integers(0, top, (28, 24, 1), np.uint8) for top in (128, 256)])
    serve = tf.saved_model.load(str(model)).signatures["serving_images"]
    found = serve(images=tf.constant(images))
    assert [name.decode() for name in found["class_name"].numpy()] == ["dark", "bright"]
