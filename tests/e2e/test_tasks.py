"""Each task on its sample, or on files of the user's, from data to the exported model."""

import io
import json
import pathlib

import keras
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
    run(tmp_path, "--config", "language_model", "--to", "Trainer", settings=settings)
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
    run(tmp_path / "out", "--config", "image_classification", "--to", "Trainer", settings=settings)
    best, model = trained(tmp_path / "out")
    assert best["accuracy"] > 0.8
    images = np.stack([draw.integers(0, top, (28, 24, 1), np.uint8) for top in (128, 256)])
    serve = tf.saved_model.load(str(model)).signatures["serving_images"]
    found = serve(images=tf.constant(images))
    assert [name.decode() for name in found["class_name"].numpy()] == ["dark", "bright"]


OWN = (
    *SMALL,
    "data.val_fraction=0.2",
    "data.corrupt_images=skip",
    "train.steps=30",
    "train.export_keras=true",
    "transform.materialize=true",
    "evaluate.thresholds={}",
    "evaluate.min_accuracy=0",
    "evaluate.better_than_constant=false",
)


def photo(number: int, pixels: np.ndarray) -> tuple[str, bytes]:
    """The name and the bytes of a file, of another kind for each number."""
    exif = Image.Exif()
    exif[0x0112] = number % 8 + 1
    kind, mode, arguments = (
        ("JPEG", "RGB", {"exif": exif}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "L", {}),
        ("PNG", "P", {}),
        ("PNG", "RGBA", {}),
        ("BMP", "P", {}),
        ("BMP", "RGB", {}),
        ("GIF", "P", {}),
        ("PNG", "I;16", {}),
    )[number % 9]
    if mode == "I;16":
        picture = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    else:
        picture = Image.fromarray(pixels).convert(mode)
    stream = io.BytesIO()
    picture.save(stream, kind, **arguments)
    return f"{number}.{kind.lower()}", stream.getvalue()


def transformed_examples(output: pathlib.Path) -> list:
    """The features of the examples that Transform wrote."""
    files = map(str, output.glob("pipeline_root/Transform/transformed_examples/*/Split-*/*"))
    records = tf.data.TFRecordDataset(sorted(files), "GZIP").as_numpy_iterator()
    return [tf.train.Example.FromString(record).features.feature for record in records]


def check_pushed(output: pathlib.Path, folder: pathlib.Path, names: list[str], shape: tuple):
    """The pushed model says of a file what the trained one says of the transformed example."""
    [pushed] = output.glob("serving/*/saved_model.pb")
    serve = tf.saved_model.load(str(pushed.parent)).signatures["serving_files"]
    trained_model = keras.saving.load_model(
        pushed.parent / "assets.extra" / "model.keras", compile=False
    )
    examples = transformed_examples(output)
    for start in range(0, len(examples), 32):
        some = examples[start : start + 32]
        given = [names[example["id"].int64_list.value[0]] for example in some]
        inputs = np.array([list(example["image"].float_list.value) for example in some])
        expected = trained_model(inputs.reshape(-1, *shape).astype(np.float32), training=False)
        files = tf.constant([(folder / name).read_bytes() for name in given])
        found = serve(files=files)["probabilities"].numpy()
        np.testing.assert_allclose(found, tf.nn.softmax(expected).numpy(), rtol=1e-4, atol=1e-5)
    assert len(examples) == sum(example_counts(output))


def example_counts(output: pathlib.Path) -> list[int]:
    """Examples of the splits that Transform writes."""
    [done] = output.glob("pipeline_root/Trainer/model_run/*/record.json")
    return list(json.loads(done.read_text())["examples"].values())


@pytest.mark.slow
def test_photos_of_any_kind_from_file_to_pushed_model(tmp_path):
    draw = np.random.default_rng(0)
    photos = tmp_path / "photos"
    for number in range(180):
        bright = number % 2
        size = draw.integers(16, 60, 2)
        pixels = draw.integers(0, 128 * (1 + bright), (*size, 3), np.uint8)
        name, data = photo(number // 2, pixels)
        path = photos / ("dark", "bright")[bright] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    names = sorted(str(path.relative_to(photos)) for path in photos.glob("*/*"))
    (photos / "dark" / "~.jpg").write_bytes(data[:40])  # the last name: the others keep their ids
    settings = (
        *OWN,
        f"data.source={photos}",
        f"data.cache_dir={tmp_path / 'cache'}",
        "data.image_size=[20, 24]",
        "data.image_fit=crop",
    )
    output = tmp_path / "out"
    done = run(output, "--config", "image_classification", settings=settings)
    best, _ = trained(output)
    assert best["accuracy"] > 0.7
    check_pushed(output, photos, names, (20, 24, 3))
    assert sum(done.result["examples"].values()) == 180
    [report] = output.glob("pipeline_root/TrainingReport/report/*/report.html")
    page = report.read_text()
    assert "count_skipped" in page
    [pushed] = output.glob("serving/*/saved_model.pb")
    images = tf.constant(draw.integers(0, 256, (2, 33, 50, 3), np.uint8))
    found = tf.saved_model.load(str(pushed.parent)).signatures["serving_images"](images=images)
    assert [name.decode() for name in found["class_name"].numpy()] == ["bright", "bright"]


@pytest.mark.full
def test_pictures_with_palette_masks_from_file_to_pushed_model(tmp_path):
    draw = np.random.default_rng(0)
    street = tmp_path / "street"
    for name in ("images", "masks"):
        (street / name).mkdir(parents=True)
    for number in range(60):
        height, width = draw.integers(20, 50, 2)
        classes = np.zeros((height, width), np.uint8)
        classes[height // 4 : height // 2] = 1
        classes[:, width // 2 :] *= 2
        pixels = np.stack([classes * 100 + draw.integers(0, 20, classes.shape)] * 3, axis=-1)
        Image.fromarray(pixels.astype(np.uint8)).save(street / "images" / f"{number:02}.jpg")
        mask = Image.fromarray(classes, "P")
        mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
        mask.save(street / "masks" / f"{number:02}.png")
    names = sorted(f"images/{path.name}" for path in (street / "images").iterdir())
    (street / "masks" / "~.png").write_bytes((street / "masks" / "00.png").read_bytes())
    settings = (
        *OWN,
        f"data.source={street}",
        f"data.cache_dir={tmp_path / 'cache'}",
        "data.image_size=[32, 32]",
        "task.args={num_classes: 3}",
    )
    output = tmp_path / "out"
    run(output, "--config", "segmentation", settings=settings)
    check_pushed(output, street, names, (32, 32, 3))
    masks = [list(e["mask"].int64_list.value) for e in transformed_examples(output)]
    assert set(np.unique(masks)) == {0, 1, 2}
    best, _ = trained(output)
    assert best["accuracy"] > 0.8
