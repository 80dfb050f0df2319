"""The classes that the train split has: their order, names, weights, and labels that are none."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from transformed import transformed

from stagecraft.trainer_module.data.tasks.kinds.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.kinds.classification import Classification
from stagecraft.trainer_module.data.tasks.mismatches import MismatchError, Observed

FEATURES = {"x": "numeric"}
TEXTS, NUMBERS = "y_texts_of_classes", "y_numbers_of_classes"


def fitted(kind, lines, name=TEXTS, **args):
    """A task that found these lines of a vocabulary."""
    vocabularies = {name: [line.encode() for line in lines]}
    return kind(FEATURES, "y", **args).fitted({}, vocabularies.get)


def batch(task, labels):
    """Targets and weights of transformed labels."""
    features = {"x": tf.ones([len(labels), 1]), "y": tf.constant(labels)}
    found = task.batch(features, tf.fill([len(labels)], 2.0))
    return found.targets.numpy().tolist(), found.weights.numpy().tolist()


ORDERS = {
    "texts": (TEXTS, ["yes", "no", "Maybe"], ("Maybe", "no", "yes"), [0, 1, 2, -1], [2, 1, 0, 0]),
    "numbers": (NUMBERS, ["9", "10", "1"], ("1", "9", "10"), [1, 9, 10, 7], [0, 1, 2, 0]),
    "below_zero": (NUMBERS, ["1", "-1", "0"], ("-1", "0", "1"), [-1, 0, 1, 2], [0, 1, 2, 0]),
    "fractions": (
        NUMBERS,
        ["0.5", "0.1", "2"],
        ("0.1", "0.5", "2"),
        [0.1, 0.5, 2.0, 1.0],
        [0, 1, 2, 0],
    ),
    "large": (
        NUMBERS,
        [str(2**62 + 1), str(2**62), "0"],
        ("0", str(2**62), str(2**62 + 1)),
        [0, 2**62, 2**62 + 1, 5],
        [0, 1, 2, 0],
    ),
    "texts_of_digits": (TEXTS, ["2", "10", "1"], ("1", "2", "10"), [0, 1, 2, -1], [1, 2, 0, 0]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_classes(name):
    vocabulary, lines, names, labels, expected = ORDERS[name]
    task = fitted(Classification, lines, vocabulary)
    assert task.class_names == names
    assert task.num_classes == task.sample_arguments["outputs"] == 3
    assert batch(task, labels) == (expected, [2, 2, 2, 0])
    assert task.batch({"x": tf.ones([1, 1])}, None).targets is None


@pytest.mark.parametrize(
    ("vocabulary", "lines", "names", "labels", "expected"),
    [
        (TEXTS, ["yes", "no"], ("no", "yes"), [0, 1, -1], [1, 0, 0]),
        (NUMBERS, ["2", "1"], ("1", "2"), [1, 2, 0], [0, 1, 0]),
        (NUMBERS, ["0"], ("0", "1"), [0, 1, 2], [0, 1, 0]),
        (TEXTS, ["1"], ("0", "1"), [0, -1, -1], [1, 0, 0]),
    ],
)
def test_the_classes_of_two(vocabulary, lines, names, labels, expected):
    task = fitted(BinaryClassification, lines, vocabulary)
    assert task.class_names == names
    targets, weights = batch(task, labels)
    assert targets == expected
    assert weights[0] == 2 and weights[-1] == 0


def test_weights_by_name():
    task = fitted(Classification, ["c", "b", "a"], class_weights={"b": 3})
    assert task.training_weights(tf.constant([0, 1, 2]), tf.float32).numpy().tolist() == [1, 3, 1]
    binary = fitted(BinaryClassification, ["yes", "no"], class_weights={"yes": 5})
    found = binary.training_weights(tf.constant([0.0, 1.0]), tf.float64)
    assert found.numpy().tolist() == [1, 5]
    assert (
        Classification(FEATURES, "y", class_weights={"a": 2}).training_weights(0, "float32") is None
    )


@pytest.mark.parametrize(
    ("kind", "lines", "args", "setting"),
    [
        (BinaryClassification, ["a", "b", "c"], {}, "task.args.label"),
        (BinaryClassification, ["a"], {}, "task.args.label"),
        (Classification, ["a"], {}, "task.args.label"),
        (Classification, list(map(str, range(1001))), {}, "task.args.label"),
        (Classification, ["a", "b"], {"num_classes": 3}, "task.args.num_classes"),
        (Classification, ["a", "b"], {"class_weights": [1, 2, 3]}, "task.args.class_weights"),
        (Classification, ["a", "b"], {"class_weights": {"c": 1}}, "task.args.class_weights"),
    ],
)
def test_classes_that_do_not_fit(kind, lines, args, setting):
    with pytest.raises(MismatchError) as caught:
        fitted(kind, lines, **args)
    assert (caught.value.setting, caught.value.record) == (setting, "y")


def test_decimal_labels_keep_their_digits(monkeypatch):
    """The example counts if its label is equal to that of a class."""
    labels, found = [1234567.0, 1234568.0, 0.5, 2.0**24], []
    monkeypatch.setattr(tft, "vocabulary", lambda texts, **_: found.extend(texts.numpy()))
    Classification(FEATURES, "y").to_label(tf.constant(labels))
    task = fitted(Classification, [text.decode() for text in found], NUMBERS)
    assert task.class_names == ("0.5", "1234567", "1234568", "16777216")
    assert batch(task, labels) == ([1, 2, 0, 3], [2] * 4)


@pytest.mark.parametrize("kind", [Classification, BinaryClassification])
def test_more_labels_than_statistics_list(kind):
    observed = {"x": Observed("FLOAT"), "y": Observed("BYTES", unique={"train": 1001})}
    [found] = kind(FEATURES, "y").mismatches(observed)
    assert (found.setting, found.feature) == ("task.args.label", "y")


@pytest.mark.parametrize(
    ("args", "setting"),
    [
        ({"label_vocabulary": [1, 2]}, "task.args.label_vocabulary"),
        ({"num_classes": 3}, "task.args.num_classes"),
    ],
)
def test_decimal_labels_that_are_no_classes(args, setting, monkeypatch):
    monkeypatch.setattr(tft, "make_and_track_object", lambda make, name: make())
    task = Classification(FEATURES, "y", **args)
    [check] = task.value_checks()
    assert (check.feature, check.setting) == ("y", setting)
    assert (
        check.accepts(tf.constant([1.0, 2.0, 0.5, 7.0])).numpy().tolist()
        == [True] * 2 + [False] * 2
    )
    assert check.accepts(tf.constant(["x"])).numpy().tolist() == [True]
    assert len(task.to_label(tf.constant([1.0, 2.0]))) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="the label y .*: 0.5"):
        task.to_label(tf.constant([1.0, 0.5]))


def test_outputs_have_names():
    logits = tf.constant([[-1.0], [1.0]])
    named = fitted(BinaryClassification, ["yes", "no"]).outputs(logits, "")
    assert named["class_name"].numpy().tolist() == [b"no", b"yes"]
    assert "class_name" not in fitted(BinaryClassification, ["1", "0"]).outputs(logits, "")
    positive = BinaryClassification(FEATURES, "y", positive="up").outputs(logits, "")
    assert positive["class_name"].numpy().tolist() == [b"not up", b"up"]
    three = fitted(Classification, ["3", "2", "1"]).outputs(tf.eye(3), "")
    assert three["class_name"].numpy().tolist() == [b"1", b"2", b"3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["ü", "a\nb", "z", "z", "z"], ("a\nb", "z", "ü")),
        ([3, 1, 1, 1, 2], ("1", "2", "3")),
        ([0.5, 2.0, 2.0, 1.0, 1.0], ("0.5", "1", "2")),
    ],
)
def test_transform_finds_the_classes(labels, names, tmp_path):
    """The vocabulary does not depend on the frequencies."""
    kinds = {str: ("BYTES", tf.string), int: ("INT", tf.int64), float: ("FLOAT", tf.float32)}
    kind, dtype = kinds[type(labels[0])]
    whole = "presence { min_fraction: 1 min_count: 1 } shape {}"
    path = tmp_path / "schema.pbtxt"
    path.write_text(
        f'feature {{ name: "x" type: FLOAT {whole} }} feature {{ name: "y" type: {kind} {whole} }}'
    )
    task = Classification(FEATURES, "y")
    rows = [{"x": float(n), "y": label} for n, label in enumerate(labels)]
    graph = transformed(task, path, rows, tmp_path, function=task.preprocess)
    name = TEXTS if kind == "BYTES" else NUMBERS
    lines = graph.vocabulary_by_name(name)
    assert lines == sorted(lines, reverse=True)
    other = TEXTS if name == NUMBERS else NUMBERS
    assert graph.vocabulary_file_by_name(other) is None
    found = task.fitted({}, lambda each: lines if each == name else ())
    assert found.class_names == names
    raw = {"x": tf.zeros([5]), "y": tf.constant(labels, dtype)}
    features = graph.transform_features_layer()(raw)
    targets = found.batch(features, tf.ones([5])).targets.numpy()
    shown = [str(label) if kind == "BYTES" else f"{label:g}" for label in labels]
    np.testing.assert_array_equal(targets, [names.index(each) for each in shown])
