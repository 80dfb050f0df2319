"""Canned models: what their settings, tasks and predictions are."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer

E = sc.estimator
JOB = E.Listed(["teacher", "nurse", "cook"])
AGE = {"age": E.Numeric()}
UNITS = [4]


def test_names_come_without_tensorflow():
    code = (
        "import sys, stagecraft as sc; e = sc.estimator; "
        "e.DNNLinearCombinedClassifier({'a': e.Hashed(9)}, dnn_feature_columns={'b': 'numeric'}, "
        "dnn_hidden_units=[3], label='y').settings(); "
        "assert not {'tensorflow', 'keras'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_estimator_s_optimizers_are_the_default():
    linear = E.LinearRegressor(AGE, label="y").settings().train
    assert (linear.optimizer, linear.learning_rate, linear.schedule) == ("ftrl", 0.2, "constant")
    many = {f"x{number}": E.Numeric() for number in range(100)}
    assert E.LinearRegressor(many, label="y").train_settings["learning_rate"] == 0.1
    deep = E.DNNRegressor(UNITS, AGE, label="y").settings().train
    assert (deep.optimizer, deep.learning_rate, deep.weight_decay) == ("adagrad", 0.05, 0)
    both = E.DNNLinearCombinedRegressor(
        AGE, dnn_feature_columns=AGE, dnn_hidden_units=UNITS, label="y"
    )
    train = both.settings(steps=7).train
    assert train.optimizer_args == {"^linear_": {"name": "ftrl"}, "": {"name": "adagrad"}}
    assert train.learning_rate_multipliers == {"^linear_": 5}
    assert (train.learning_rate, train.steps) == (0.001, 7)


@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "SGD", "learning_rate": 0.5, "momentum": 0.5},
        keras.optimizers.SGD(0.5, momentum=0.5),
    ],
)
def test_an_optimizer_of_keras_becomes_settings(optimizer):
    train = E.DNNRegressor(UNITS, AGE, label="y", optimizer=optimizer).settings().train
    assert (train.optimizer, train.learning_rate, train.momentum) == ("sgd", 0.5, 0.5)
    found, expected = keras.Variable(1.0, name="kernel"), keras.Variable(1.0)
    ours, theirs = make_optimizer(train, [found]), keras.optimizers.SGD(0.5, momentum=0.5)
    for gradient in (1.0, 0.5):
        ours.apply([tf.constant(gradient)], [found])
        theirs.apply([tf.constant(gradient)], [expected])
    assert float(found) == float(expected)


def test_arguments_of_parts():
    canned = E.DNNLinearCombinedRegressor(
        AGE,
        {"name": "ftrl", "learning_rate": 0.2, "l1_regularization_strength": 0.1},
        AGE,
        keras.optimizers.Adam(0.1, beta_1=0.5),
        UNITS,
        label="y",
    )
    train = canned.settings().train
    parts = [*train.optimizer_args.values()]
    assert parts[0] == {"name": "ftrl", "l1_regularization_strength": 0.1}
    assert parts[1] == {"name": "adam", "beta_1": 0.5}
    assert train.learning_rate_multipliers == {"^linear_": 2.0}


def test_predictions_have_estimator_s_names():
    logits = tf.constant([[-1.0], [2.0]])
    found = E.LinearRegressor(AGE, label="y").task.outputs(logits, "")
    assert found["predictions"].numpy().tolist() == [[-1], [2]]
    binary = E.LinearClassifier(AGE, label="y", label_vocabulary=["no", "yes"])
    found = {key: value.numpy() for key, value in binary.task.outputs(logits, "").items()}
    assert found["classes"].tolist() == [[b"no"], [b"yes"]]
    assert found["class_ids"].tolist() == [[0], [1]]
    np.testing.assert_allclose(found["logistic"], 1 / (1 + np.exp([[1], [-2]])), rtol=1e-6)
    np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1, rtol=1e-6)
    logits = tf.constant([[0.0, 3, 1], [2, 0, 0]])
    several = E.LinearClassifier(AGE, label="y", n_classes=3)
    found = {key: value.numpy() for key, value in several.task.outputs(logits, "").items()}
    assert found["classes"].tolist() == [[b"1"], [b"0"]]
    np.testing.assert_allclose(found["probabilities"], tf.nn.softmax(logits), rtol=1e-6)


def test_labels_of_two_classes():
    task = E.LinearClassifier(AGE, label="y").task
    assert task.to_label(tf.constant([1, 0])).numpy().tolist() == [1, 0]
    with pytest.raises(tf.errors.InvalidArgumentError):
        task.to_label(tf.constant([2]))


@pytest.mark.slow
def test_keras_trains_and_saves_the_model(tmp_path):
    canned = E.DNNLinearCombinedClassifier(
        {"job": JOB},
        dnn_feature_columns={**AGE, "job": E.Embedding(JOB, 2), "town": E.Indicator(E.Hashed(3))},
        dnn_hidden_units=[8, 4],
        label="y",
        n_classes=3,
        dnn_dropout=0.1,
        batch_norm=True,
    )
    model = canned.build()
    inputs, labels = canned.task.noise(canned.task.sample_arguments, 16, np.random.default_rng(0))
    model.compile("adam", canned.loss)
    first = model.evaluate(inputs, labels, verbose=0)
    model.fit(inputs, labels, epochs=20, verbose=0)
    assert model.evaluate(inputs, labels, verbose=0) < first
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_array_equal(loaded.predict(inputs), model.predict(inputs))


def test_one_feature_can_have_several_columns():
    canned = E.DNNRegressor(
        UNITS,
        {
            "age": E.Numeric(),
            "log_age": E.Numeric(source="age", normalizer="none"),
            "job": E.Embedding(JOB, 2),
            "job_too": E.Indicator(E.Listed(["cook"], source="job")),
        },
        label="y",
    )
    assert canned.task.schema_features == ("age", "job", "y")
    # An embedding of 2, an indicator of 1, and two numbers.
    assert canned.build().get_layer("dnn_hiddenlayer_0").kernel.shape == (5, 4)


REFUSED = {
    "feature_columns": lambda: E.LinearRegressor([E.Numeric()], label="y"),
    "hidden_units": lambda: E.DNNRegressor([], AGE, label="y"),
    "dropout": lambda: E.DNNRegressor(UNITS, AGE, label="y", dropout=1.5),
    "n_classes": lambda: E.LinearClassifier(AGE, label="y", n_classes=1),
    "label_vocabulary": lambda: E.LinearClassifier(AGE, label="y", label_vocabulary=["a"]),
    "loss_reduction": lambda: E.LinearRegressor(AGE, label="y", loss_reduction="sum"),
    "optimizer": lambda: E.LinearRegressor(AGE, label="y", optimizer=3),
    "linear_optimizer": lambda: E.DNNLinearCombinedRegressor(AGE, "Frtl", label="y"),
    "weight_column": lambda: E.LinearRegressor(AGE, label="y", weight_column="age"),
    "dnn_hidden_units": lambda: E.DNNLinearCombinedRegressor(dnn_feature_columns=AGE, label="y"),
    "dnn_feature_columns: job": lambda: E.DNNRegressor(UNITS, {"job": JOB}, label="y"),
    "linear_feature_columns: job": lambda: E.LinearRegressor(
        {"job": E.Embedding(JOB, 2)}, label="y"
    ),
    "feature_columns: age": lambda: E.DNNRegressor(
        UNITS, {"age": E.Embedding(E.Numeric(), 2)}, label="y"
    ),
    "dnn_feature_columns: b": lambda: E.DNNRegressor(
        UNITS,
        {"a": E.Embedding(E.Hashed(3), 2, "s"), "b": E.Embedding(E.Hashed(4), 2, "s")},
        label="y",
    ),
    "dnn_feature_columns": lambda: E.DNNLinearCombinedRegressor(
        {"a": E.Hashed(3)},
        dnn_feature_columns={"a": E.Indicator(E.Hashed(4))},
        dnn_hidden_units=UNITS,
        label="y",
    ),
    "linear_feature_columns": lambda: E.DNNLinearCombinedRegressor(label="y"),
    "label": lambda: E.LinearRegressor(AGE, label="age"),
    "train.optimizer_args": lambda: E.LinearRegressor(
        AGE, label="y", optimizer={"name": "ftrl", "rate": 1}
    ).settings(),
    "dnn_optimizer": lambda: E.DNNLinearCombinedRegressor(
        AGE,
        {"name": "sgd", "momentum": 0.1},
        AGE,
        "sgd",
        UNITS,
        label="y",
    ),
}


@pytest.mark.parametrize("setting", REFUSED)
def test_wrong_arguments_are_refused(setting):
    with pytest.raises(SettingError) as caught:
        REFUSED[setting]()
    assert caught.value.setting == setting


def test_settings_travel():
    """Flat settings name the objects, so that run_fn finds them in this process."""
    canned = E.DNNRegressor(UNITS, AGE, label="y")
    settings = canned.settings(sc.Parallel(strategy="mirrored", replicas=2), batch_size=8)
    again = type(settings).from_flat(json.loads(json.dumps(settings.flat())))
    assert again.task.found is canned.task
    assert again == settings


@pytest.mark.parametrize(
    ("vocabulary", "classes", "use"),
    [("abc", 2, "n_classes=3"), ("ab", 3, "n_classes=2"), ("aab", 3, '["no", "yes"]')],
)
def test_labels_that_are_not_as_many_as_classes(vocabulary, classes, use):
    with pytest.raises(SettingError) as caught:
        E.LinearClassifier(AGE, label="y", n_classes=classes, label_vocabulary=list(vocabulary))
    assert (caught.value.setting, caught.value.suggestion) == ("label_vocabulary", use)
