"""Weights meet other data: rows follow their tokens, and other changes are refused by name."""

from __future__ import annotations

import functools
import json
import logging
import pathlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from transformed import transformed

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.initial_weights import transform_graph_match
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training.export import export

SCHEMA = """
feature { name: "town" type: BYTES presence { min_fraction: 0 } }
feature { name: "age" type: INT presence { min_fraction: 0 } }
feature { name: "size" type: FLOAT presence { min_fraction: 0 } }
feature { name: "y" type: LABEL presence { min_fraction: 1 min_count: 1 } shape {} }
"""

FEATURES: Mapping[str, Any] = {
    "town": {"kind": "vocabulary", "size": 4},
    "age": {"kind": "bucketized", "buckets": 3},
    "size": "numeric",
}

Made = Callable[..., tuple[Any, Any, str]]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Task, graph and schema of some rows; made once."""

    @functools.cache
    def make(
        towns: str,
        sizes: Sequence[float] = (1, 2, 3),
        ages: Sequence[int] = (10, 20, 30),
        labels: Sequence[Any] = (0.0, 1.0),
        classes: Sequence[str] | None = None,
        most: int = 4,
    ) -> tuple[Any, Any, str]:
        folder = tmp_path_factory.mktemp("data")
        schema = folder / "schema.pbtxt"
        schema.write_text(SCHEMA.replace("LABEL", "BYTES" if classes else "FLOAT"))
        task = "classification" if classes else "regression"
        arguments = {"label_vocabulary": classes} if classes else {}
        features = {**FEATURES, "town": {"kind": "vocabulary", "size": most}}
        made = registries.task(task, {"features": features, "label": "y", **arguments})
        rows = [
            {
                "town": [town.encode()],
                "age": [ages[number % len(ages)]],
                "size": [float(sizes[number % len(sizes)])],
                "y": labels[number % len(labels)],
            }
            for number, town in enumerate(towns)
        ]
        graph = transformed(made, schema, rows, folder, made.preprocess)
        return made, graph, str(schema)

    return make


@pytest.fixture(scope="module")
def model(make: Made, tmp_path_factory: pytest.TempPathFactory) -> tuple[keras.Model, pathlib.Path]:
    """A model of the old data with random weights, and where the Trainer exported it."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    return exported(make(OLD), folder), folder


OLD = "a" * 9 + "b" * 6 + "c" * 3  # ids: a 0, b 1, c 2
NEW = "c" * 9 + "a" * 6 + "d" * 3  # ids: c 0, a 1, d 2


def exported(made: tuple[Any, Any, str], folder: pathlib.Path) -> keras.Model:
    """A model with random weights, as the Trainer exports it."""
    task, graph, schema = made
    model = built(made, TrainSettings(model="dnn_4"))
    draw = np.random.default_rng(3)
    weights = {w.path: draw.standard_normal(w.shape).astype(np.float32) for w in model.variables}
    export(folder, model, weights, graph, task, schema)
    return model


def built(made: tuple[Any, Any, str], train: TrainSettings, graph: Any = None, **more: Any) -> Any:
    task, _, schema = made
    return assemble(train, task.model_arguments(schema), task=task, transform=graph, **more)


def started(made: tuple[Any, Any, str], weights: pathlib.Path, **more: Any) -> tuple[Any, Any]:
    notes: list[Any] = []
    train = TrainSettings(model="dnn_4", initial_weights=str(weights), **more)
    return built(made, train, made[1], on_loaded=notes.append), notes[0]


def answers(model: keras.Model, made: tuple[Any, Any, str], towns: Sequence[str]) -> np.ndarray:
    count = len(towns)
    places = np.stack([np.arange(count), np.zeros(count, int)], axis=1)

    def column(values: Any) -> Any:
        return tf.sparse.SparseTensor(places, tf.constant(values), [count, 1])

    raw = {"town": column(list(towns)), "age": column(np.arange(count) * 7)}
    features = made[1].transform_raw_features(raw | {"size": column([1.5] * count)})
    return model({name: features[name] for name in FEATURES}).numpy()


@pytest.mark.slow
def test_rows_follow_their_tokens(make, model):
    """The vocabulary's order has changed: without the rows' new places, answers are others'."""
    old, new = make(OLD), make(NEW)
    moved, note = started(new, model[1])
    known = ["a", "c", "never seen"]
    np.testing.assert_array_equal(answers(moved, new, known), answers(model[0], old, known))
    # A new token answers as one that is not in the vocabulary.
    np.testing.assert_array_equal(answers(moved, new, ["d"]), answers(model[0], old, ["d"]))
    assert (note.compared, note.carried) == (True, ("town",))
    rows = [each.get_layer("embedding_town").embeddings.numpy() for each in (model[0], moved)]
    assert not np.array_equal(*rows)
    # Who takes no weights of the embedding, may have another vocabulary.
    _, note = started(new, model[1], initial_weights_skip="embedding_town")
    assert (note.compared, note.carried) == (True, ())


GROWN = "d" * 9 + "c" * 7 + "e" * 5 + "a" * 3  # ids: d 0, c 1, e 2, a 3; b is gone


@pytest.mark.slow
@pytest.mark.parametrize("most", [4, pytest.param(9, marks=pytest.mark.full)])
def test_a_vocabulary_that_grows(make, model, most):
    """Known words answer as before, with more rows, too; new ones have rows of their own."""
    old, new = make(OLD), make(GROWN, sizes=(1, 2, 3), most=most)
    warm, note = started(new, model[1], warm_start={})
    known = ["a", "c", "never seen", "b"]
    before = answers(model[0], old, ["a", "c", "never seen", "never seen"])
    np.testing.assert_array_equal(answers(warm, new, known), before)
    [(path, counts)] = note.rows.items()
    assert counts == {"carried": 2, "new": 2, "dropped": 1}
    fresh = built(new, TrainSettings(model="dnn_4")).get_layer("embedding_town").embeddings.numpy()
    rows = warm.get_layer("embedding_town").embeddings
    assert (path, rows.path) == (rows.path, path)
    np.testing.assert_array_equal(rows.numpy()[[0, 2]], fresh[[0, 2]])
    assert json.loads(json.dumps(note.entry()))["rows"] == {path: counts}


@pytest.mark.full
@pytest.mark.slow
def test_a_warm_start_takes_numbers_of_another_scale(make, model):
    _, note = started(make(OLD, **OTHERS["size"]), model[1], warm_start={})
    assert [each.partition(" of ")[0] for each in note.rescaled] == ["size"]
    assert not note.rows


@pytest.mark.slow
def test_classes_that_grow(make, tmp_path):
    """The outputs of known classes are as before, at their new places."""
    old, new = (
        make(OLD, labels=classes, classes=classes)
        for classes in (("no", "yes"), ("maybe", "no", "yes"))
    )
    before = exported(old, tmp_path / "model")
    warm, note = started(new, tmp_path / "model", warm_start={})
    for weight, known in zip(
        *(each.get_layer("deep").weights for each in (warm, before)), strict=True
    ):
        np.testing.assert_array_equal(weight.numpy()[..., 1:], known.numpy())
    counts = {"carried": 2, "new": 1, "dropped": 0}
    assert dict(note.rows) == {"deep/kernel": counts, "deep/bias": counts}


def test_equal_data_change_nothing(make, model):
    again, note = started(make(OLD), model[1])
    for one, two in zip(model[0].weights, again.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert (note.compared, note.carried) == (True, ())


OTHERS: Mapping[str, Mapping[str, Any]] = {
    "size": {"sizes": (100, 200, 300)},
    "age": {"ages": (10, 25, 90)},
    "y": {"labels": (0.0, 5.0)},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "feature", ["size", *(pytest.param(each, marks=pytest.mark.full) for each in ("age", "y"))]
)
def test_other_ranges_are_refused_by_name(feature, make, model):
    with pytest.raises(transform_graph_match.MeaningError) as caught:
        started(make(OLD, **OTHERS[feature]), model[1])
    [change] = caught.value.changes
    assert (change.feature, change.raw) == (feature, feature)
    assert change.before != change.after
    assert caught.value.path == str(model[1])
    assert str(model[1]) in caught.value.suggestion


@pytest.mark.full
def test_the_order_of_labels_is_refused(make, tmp_path):
    old, new = (
        make(OLD, labels=("no", "yes"), classes=classes)
        for classes in (("no", "yes"), ("yes", "no"))
    )
    exported(old, tmp_path / "model")
    with pytest.raises(transform_graph_match.MeaningError) as caught:
        started(new, tmp_path / "model")
    found = {(each.feature, each.value, each.before, each.after) for each in caught.value.changes}
    assert found == {("y", "'no'", "0", "1")}
    # A new head has labels of its own.
    started(new, tmp_path / "model", initial_weights_skip="deep")


def test_a_file_without_its_graph_is_told(make, model, tmp_path, caplog):
    model[0].save_weights(tmp_path / "alone.weights.h5")
    with caplog.at_level(logging.INFO, "stagecraft.progress"):
        _, note = started(make(OLD), tmp_path / "alone.weights.h5")
    assert note.compared is False
    [shown] = [each.progress for each in caplog.records if hasattr(each, "progress")]
    assert shown == {"phase": "weights", "note": note.note()}
    assert len(note.note()) > len(note._replace(compared=True).note())


def test_class_names_of_pictures(tmp_path):
    """The Transform graph of pictures does not know the names; the schema does."""
    task = registries.TASKS.get("image_classification")
    folders = []
    for names in (("cat", "dog"), ("dog", "cat")):
        folder = tmp_path / names[0]
        folder.mkdir()
        schema = folder / "schema.pbtxt"
        values = " ".join(f'value: "{name}"' for name in names)
        schema.write_text(
            'feature { name: "image" type: BYTES presence { min_fraction: 1 } shape {}'
            ' annotation { tag: "image_shape=2x2x1" } }'
            'feature { name: "label" type: INT presence { min_fraction: 1 } shape {}'
            " int_domain { min: 0 max: 1 } }"
            'feature { name: "id" type: BYTES presence { min_fraction: 1 } shape {} }'
            f'string_domain {{ name: "label_names" {values} }}'
        )
        rows = [{"image": bytes(4), "label": 1, "id": b"1"}]
        folders.append(transformed(task, schema, rows, folder))
    graphs = [pathlib.Path(each.transform_savedmodel_dir).parent for each in folders]
    [change] = transform_graph_match.compare(*graphs).changes
    assert (change.before, change.after) == ("cat", "dog")
    assert transform_graph_match.compare(graphs[0], graphs[0]).changes == []


def test_numbers_that_count_other_classes():
    """Transform leaves such labels as they are, but the rows of the head have other classes."""

    def graph(*classes: bytes) -> Any:
        made = object.__new__(transform_graph_match._Graph)
        known = {"y_numbers_of_classes": sorted(classes, reverse=True)}
        made._output = types.SimpleNamespace(
            vocabulary_file_by_name=known.get, vocabulary_by_name=known.__getitem__
        )
        return made

    old, new = graph(b"1", b"2", b"3"), graph(b"1", b"3", b"10")
    [change] = transform_graph_match._of_numbers((old, new), ["x", "y"])
    assert (change.feature, change.before, change.after) == ("y", "1, 2, 3", "1, 3, 10")
    assert change.ids == {0: 0, 1: 2}
    assert not list(transform_graph_match._of_numbers((old, old), ["y"]))
