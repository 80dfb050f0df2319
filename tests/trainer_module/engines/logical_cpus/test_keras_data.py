"""Datasets of ``keras.utils``, compared with Keras's own fit."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import stagecraft as sc

pytestmark = pytest.mark.usefixtures("in_float64")

GRID = sc.Parallel(strategy="grid", replicas=2, stages=2, microbatches=2)
WORDS = ["red", "green", "blue", "dark", "light", "warm", "cold", "old", "new"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """``pictures/CLASS/NAME.png`` and ``texts/CLASS/NAME.txt``, 23 each: batches of 4 end short."""
    found = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    for number in range(23):
        kind = ("a", "b")[number % 2]
        for name in ("pictures", "texts"):
            (found / name / kind).mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, (9, 7 + number % 3, 3), np.uint8)
        picture = found / "pictures" / kind / f"{number}.png"
        picture.write_bytes(tf.io.encode_png(pixels).numpy())
        text = " ".join(draw.choice(WORDS, 3 + number % 4))
        (found / "texts" / kind / f"{number}.txt").write_text(text)
    return found


class Data(NamedTuple):
    """The arguments of ``fit``."""

    x: tf.data.Dataset
    validation: tf.data.Dataset | None = None
    given: tf.data.Dataset | None = None
    """What ``predict`` gets; None: that of the training."""


def series(folder: pathlib.Path) -> Data:
    values = np.random.default_rng(0).normal(size=(41, 3))
    made = keras.utils.timeseries_dataset_from_array
    given = {"sequence_length": 6, "batch_size": 5}
    train = made(values[:-6], values[6:, 0], shuffle=True, seed=3, sampling_rate=1, **given)
    later = made(values, values[6:, 0], start_index=10, sequence_stride=2, **given)
    return Data(train, later, made(values, None, **given))


def pictures(label_mode: str | None = "int", **arguments: Any) -> Callable[[pathlib.Path], Data]:
    """Pictures of several sizes, shuffled anew in each epoch."""

    def make(folder: pathlib.Path) -> Data:
        train, later = keras.utils.image_dataset_from_directory(
            folder / "pictures",
            label_mode=label_mode,
            image_size=(8, 8),
            batch_size=4,
            seed=3,
            validation_split=0.3,
            subset="both",
            verbose=False,
            **arguments,
        )
        assert train.class_names == later.class_names == ["a", "b"]
        assert len(later) == 2
        return Data(train.prefetch(2), later)

    return make


def unlabelled(folder: pathlib.Path) -> Data:
    made = keras.utils.image_dataset_from_directory(
        folder / "pictures", labels=None, image_size=(8, 8), batch_size=4, shuffle=False,
        crop_to_aspect_ratio=True, verbose=False,
    )  # fmt: skip
    return Data(made)


def copied(folder: pathlib.Path) -> Data:
    made = unlabelled(folder).x
    return Data(made.map(lambda x: (x, x / 255)), given=made)


def texts(folder: pathlib.Path) -> Data:
    train, later = keras.utils.text_dataset_from_directory(
        folder / "texts", batch_size=4, seed=3, validation_split=0.3, subset="both", verbose=False
    )
    return Data(train.cache().prefetch(1), later)


def tokens(folder: pathlib.Path) -> Data:
    data, words = texts(folder), vectorization()
    given = [each.map(lambda x, y: (words(x), y)) for each in data[:2]]
    return Data(*given)


def vectorization() -> layers.Layer:
    return layers.TextVectorization(output_sequence_length=6, vocabulary=WORDS)


def binary() -> keras.losses.Loss:
    return keras.losses.BinaryCrossentropy(from_logits=True)


def forecast() -> keras.Model:
    hidden = [layers.Conv1D(5, 3, activation="tanh"), layers.Flatten(), layers.Dense(1)]
    model = keras.Sequential([keras.Input((6, 3)), *hidden])
    model.compile("adam", "mse", metrics=["mae"])
    return model


def network(outputs: int, loss: Callable[[], Any]) -> Callable[[], keras.Model]:
    def make() -> keras.Model:
        inputs = keras.Input((8, 8, 3))
        hidden = layers.Rescaling(1 / 255)(inputs)
        hidden = layers.RandomFlip("horizontal", seed=2)(hidden)
        hidden = layers.Conv2D(4, 3, activation="relu")(hidden)
        hidden = layers.Dropout(0.2, seed=4)(layers.Flatten()(hidden))
        model = keras.Model(inputs, layers.Dense(outputs)(layers.Dense(5)(hidden)))
        model.compile("adam", loss(), metrics=["accuracy"])
        return model

    return make


def coder() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    hidden = layers.Dense(10, "relu")(layers.Flatten()(layers.Rescaling(1 / 255)(inputs)))
    model = keras.Model(inputs, layers.Reshape((8, 8, 3))(layers.Dense(192)(hidden)))
    model.compile("adam", "mse")
    return model


class OwnLoss(keras.Model):
    """Needs no targets."""

    def __init__(self) -> None:
        super().__init__()
        self.coder = coder()

    def call(self, inputs: Any) -> Any:
        outputs = self.coder(inputs)
        self.add_loss(ops.mean(ops.square(outputs - inputs / 255)))
        return outputs


def with_own_loss() -> keras.Model:
    model = OwnLoss()
    model.compile("adam")
    return model


def reader(*, of_texts: bool) -> Callable[[], keras.Model]:
    def make() -> keras.Model:
        inputs = keras.Input((), dtype="string") if of_texts else keras.Input((6,), dtype="int64")
        hidden = vectorization()(inputs) if of_texts else inputs
        hidden = layers.Embedding(len(WORDS) + 2, 6)(hidden)
        hidden = layers.Dense(5, "tanh")(layers.GlobalAveragePooling1D()(hidden))
        model = keras.Model(inputs, layers.Dense(1)(hidden))
        model.compile("adam", binary(), metrics=["accuracy"])
        return model

    return make


CASES: dict[str, tuple[Callable[[pathlib.Path], Data], Callable[[], keras.Model]]] = {
    "series": (series, forecast),
    "classes": (
        pictures(),
        network(2, lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
    ),
    "one-hot": (
        pictures("categorical", pad_to_aspect_ratio=True),
        network(2, lambda: keras.losses.CategoricalCrossentropy(from_logits=True)),
    ),
    "binary": (pictures("binary"), network(1, binary)),
    "no labels": (unlabelled, with_own_loss),
    "copied": (copied, coder),
    "texts": (texts, reader(of_texts=True)),
    "tokens": (tokens, reader(of_texts=False)),
}


def trained(case: str, folder: pathlib.Path, how: str, parallel: sc.Parallel | None) -> list[Any]:
    """Curves, weights, predictions and an evaluation after two epochs."""
    make_data, make_model = CASES[case]
    keras.utils.set_random_seed(0)
    data, model = make_data(folder), make_model()
    arguments: dict[str, Any] = {"epochs": 2, "verbose": 0, "validation_data": data.validation}
    if how == "parallelize":
        sc.parallelize(model, parallel)
    if how == "fit":
        history = sc.fit(model, data.x, parallel=parallel, **arguments)
    else:
        history = model.fit(data.x, **arguments)
    given = data.given or (data.validation or data.x)
    evaluated = model.evaluate(data.validation or data.x, verbose=0, return_dict=True)
    weights = [weight.numpy() for weight in model.weights if weight.dtype != "string"]
    return [history.history, weights, model.predict(given, verbose=0), evaluated]


@pytest.fixture(scope="module")
def by_keras() -> dict[str, list[Any]]:
    return {}


def of_all(how: str, parallel: sc.Parallel | None, *, soon: str) -> list[Any]:
    """A parameter for each case; CI leaves out those besides ``soon``."""
    marks = {case: () if case in soon.split() else pytest.mark.full for case in CASES}
    name = f"{how} on {'one device' if parallel is None else 'a grid'}"
    return [
        pytest.param(case, how, parallel, id=f"{case}: {name}", marks=marks[case]) for case in CASES
    ]


@pytest.mark.parametrize(
    ("case", "how", "parallel"),
    [
        *of_all("fit", None, soon="series classes texts"),
        *of_all("parallelize", GRID, soon="series classes texts"),
        *of_all("fit", GRID, soon=""),
    ],
)
def test_datasets_of_keras_train_as_in_keras(case, how, parallel, folder, by_keras):
    if case not in by_keras:
        by_keras[case] = trained(case, folder, "keras", None)
    found = trained(case, folder, how, parallel)
    for one, other in zip(tf.nest.flatten(by_keras[case]), tf.nest.flatten(found), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "case",
    ["series", *(pytest.param(each, marks=pytest.mark.full) for each in ("classes", "texts"))],
)
def test_parity_of_datasets_of_keras(case, folder):
    make_data, make_model = CASES[case]
    report = sc.check_parity(make_model(), make_data(folder).x, parallel=GRID, steps=3)
    assert report, report


@pytest.mark.full
def test_other_processes_get_the_batches_of_a_dataset_of_keras(folder, by_keras):
    """Texts, and a short last batch, over a socket."""
    case = "texts"
    if case not in by_keras:
        by_keras[case] = trained(case, folder, "keras", None)
    workers = sc.Parallel(strategy="multi_worker_mirrored", workers=2)
    found = trained(case, folder, "fit", workers)
    for one, other in zip(
        tf.nest.flatten(by_keras[case][:2]), tf.nest.flatten(found[:2]), strict=True
    ):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
