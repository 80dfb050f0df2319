import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal
from transformed import transformed

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module import registries, safe_names
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.kinds.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.kinds.regression import R2, Regression
from stagecraft.trainer_module.data.tasks.tables.columns import Numeric, Vocabulary
from stagecraft.trainer_module.data.tasks.task import Served
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.models import build_model
from stagecraft.trainer_module.settings import TaskSettings, TrainingSettings, TrainSettings
from stagecraft.trainer_module.training import export

DRAW = np.random.default_rng(3)
LABELS = DRAW.integers(0, 2, 500).astype(np.float32)
LOGITS = (DRAW.standard_normal((500, 1)) + LABELS[:, None]).astype(np.float32)
WEIGHTS = DRAW.uniform(0, 2, 500).astype(np.float32)


def result(metric, outputs, targets, weights):
    sums = [
        metric.sums(tf.constant(a), tf.constant(b), tf.constant(c), tf.float64)
        for a, b, c in zip(
            *(np.split(each, 5) for each in (outputs, targets, weights)), strict=True
        )
    ]
    return metric.result(np.sum(sums, axis=0))


def test_auc_and_accuracy_are_keras_s():
    task = BinaryClassification({"x": "numeric"}, "y")
    found = {each.name: result(each, LOGITS, LABELS, WEIGHTS) for each in task.metrics()}
    probabilities = tf.sigmoid(tf.cast(LOGITS[:, 0], tf.float64))
    for name, metric in {
        "auc": keras.metrics.AUC(),
        "accuracy": keras.metrics.BinaryAccuracy(),
    }.items():
        metric.update_state(LABELS, probabilities, WEIGHTS)
        # Keras adds up 500 float32.
        assert found[name] == pytest.approx(float(metric.result()), rel=1e-5)


def test_the_metrics_of_a_regression_are_keras_s():
    task = Regression({"x": "numeric"}, "y")
    labels = 3 * LABELS + DRAW.standard_normal(500).astype(np.float32)
    found = {each.name: result(each, LOGITS, labels, WEIGHTS) for each in task.metrics()}
    for name, metric in {
        "mse": keras.metrics.MeanSquaredError(),
        "mae": keras.metrics.MeanAbsoluteError(),
        "r2": keras.metrics.R2Score(),
    }.items():
        metric.update_state(labels[:, None], LOGITS, WEIGHTS)
        assert found[name] == pytest.approx(float(metric.result()), rel=1e-4)


@pytest.mark.parametrize("mean", [0, 1e3, 1e5])
def test_r2_of_labels_far_from_zero(mean):
    """In float32, the sums of their squares would hide how they differ."""
    labels = (mean + DRAW.standard_normal(500)).astype(np.float32)
    outputs = (labels + 0.3 * DRAW.standard_normal(500)).astype(np.float32)[:, None]
    batch = Batch({}, tf.constant(labels), tf.ones(500))
    objective = Objective(TrainingSettings(task=TaskSettings(name="regression")))
    expected = 1 - ((outputs[:, 0] - labels.astype(float)) ** 2).sum() / 500 / labels.var(
        dtype=float
    )
    of_step = objective.values(objective.sums(tf.constant(outputs), batch).numpy())
    evaluated = objective.evaluated(objective.evaluation(tf.constant(outputs), batch).numpy())
    exported = export.evaluated(lambda _: outputs, batch, objective.task, lambda *_: LABELS)
    start = sum(each.size for each in objective.task.metrics()[:2])
    of_evaluator = R2().result(exported["metrics"].numpy().sum(axis=0)[start:])
    for found in (of_step["r2"], evaluated.values["r2"], of_evaluator):
        # The sum of squares is 1e10 times the variance, each float64 has 16 digits.
        assert found == pytest.approx(expected, abs=1e-5)


def test_labels_that_do_not_vary_have_no_r2():
    labels = np.full(500, 0.1, np.float32)
    assert np.isnan(result(R2(), LOGITS, labels, WEIGHTS))


def test_the_report_finds_its_numbers():
    """Sections need them by these names."""
    pair = tf.constant(LOGITS), tf.constant(LABELS)
    regression = Regression({"x": "numeric"}, "y")
    found = regression.sampled(*pair)
    np.testing.assert_array_equal(found["predicted"], LOGITS[:, 0])
    np.testing.assert_array_equal(found["actual"], LABELS)
    classifier = BinaryClassification({"x": "numeric"}, "y")
    found = classifier.sampled(*pair)
    np.testing.assert_allclose(found["probability"], 1 / (1 + np.exp(-LOGITS[:, 0])), rtol=1e-5)
    np.testing.assert_array_equal(found["actual"], LABELS)
    assert regression.report_sections == ("residuals", "features")
    assert classifier.report_sections == ("binary", "features")


def test_losses_and_class_weights():
    task = BinaryClassification({"x": "numeric"}, "y", class_weights=[1, 3])
    expected = keras.losses.BinaryCrossentropy(from_logits=True, reduction=None)(
        LABELS[:, None], LOGITS
    )
    args = tf.constant(LOGITS), tf.constant(LABELS), tf.float32
    for train in (None, TrainSettings()):
        np.testing.assert_allclose(task.losses(*args, train), expected, rtol=1e-5, atol=1e-6)
    smoothing = keras.losses.BinaryCrossentropy(True, label_smoothing=0.2, reduction=None)
    expected = smoothing(LABELS[:, None], LOGITS)
    smoothed = task.losses(*args, TrainSettings(label_smoothing=0.2))
    np.testing.assert_allclose(smoothed, expected, rtol=1e-5, atol=1e-6)
    weights = task.training_weights(tf.constant(LABELS), tf.float64)
    np.testing.assert_array_equal(weights, 1 + 2 * LABELS)
    assert weights.dtype == tf.float64


def test_numbers_are_not_smoothed():
    smoothed = {"task": {"name": "regression"}, "train": {"label_smoothing": 0.1}}
    error = refusal(TrainingSettings, smoothed)
    assert error.setting == "train.label_smoothing"


def test_a_weight_column_counts_in_loss_and_metrics():
    task = Regression({"x": "numeric"}, "y", weight="w")
    features = {"x": tf.ones([2, 1]), "y": tf.ones(2), "w": tf.constant([2.0, 3.0])}
    batch = task.batch(features, tf.constant([1.0, 0.0]))
    np.testing.assert_array_equal(batch.weights, [2, 0])
    served = task.batch({"x": tf.ones([2, 1])}, None)
    assert served.targets is None and served.weights is None


@pytest.mark.parametrize("model", ["linear", "dnn_8_4", "wide_deep_8"])
@pytest.mark.parametrize("kinds", [["numeric"], ["hashed"], ["numeric", "hashed", "numeric"]])
def test_families_take_any_columns(model, kinds):
    task = Regression({f"x{number}": kind for number, kind in enumerate(kinds)}, "y")
    built = build_model.build(model, task.sample_arguments, task)
    inputs, _ = task.noise(task.sample_arguments, 3, np.random.default_rng(0))
    outputs = built(inputs)
    task.check_outputs(model, outputs, task.sample_arguments)
    with pytest.raises(UserError):
        task.check_outputs(model, outputs[:, 0], task.sample_arguments)


INDICATED = {"a": {"kind": "numeric", "missing_indicator": True}}
POSITIVE = {"features": {"a": "numeric"}, "label": "y"}


@pytest.mark.parametrize("model", ["linear", "dnn_8", "wide_deep_8"])
def test_columns_may_have_the_names_of_layers(model):
    names = ("sum", "wide", "deep", "linear", "numbers", "columns", "dense1", "embedding_a", "a")
    for kind in ("numeric", "hashed"):
        task = Regression(dict.fromkeys(names, kind) | {"a_flat": "hashed", "b": "numeric"}, "y")
        built = build_model.build(model, task.sample_arguments, task)
        assert set(built.input) == {*names, "a_flat", "b"}


ODD = (
    "a b", "a_b", "A_B", "Größe", "Grüße", "1", "a:b", "inputs", "x-y", "a/b", "/", "_x",
    "价格", "面积", "x" * 200, "价" * 200, " ", "😀", "{a}", "100%", "a\nb",
)  # fmt: skip


def test_columns_may_have_any_names():
    for names in (ODD[::2], ODD[1::2]):
        kinds = dict.fromkeys(ODD, "numeric") | dict.fromkeys(names, "hashed")
        task = Regression(kinds, "y")
        built = tf.function(build_model.build("wide_deep_8", task.sample_arguments, task))
        inputs, _ = task.noise(task.sample_arguments, 3, DRAW)
        assert built(inputs).shape == (3, 1)


def test_columns_of_any_names_are_served(tmp_path):
    """By their own names, to TensorFlow Serving and in Python."""
    task = Regression(dict.fromkeys(ODD, "numeric"), "y")
    spec = {name: tf.io.FixedLenFeature([1], tf.float32) for name in ODD}
    served = Served(
        lambda raw: {str(n): raw[name] for n, name in enumerate(ODD)}, None, None, spec, None, ""
    )
    signature = task.plain_signatures(served)["serving_columns"]
    concrete = export._concrete(*signature)
    tf.saved_model.save(tf.Module(), str(tmp_path), {"serving_columns": concrete})
    export.restore_input_names(tmp_path, {"serving_columns": signature[1]})
    given = {name: tf.constant([float(n)]) for n, name in enumerate(ODD)}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path))
        found = graph.signature_def["serving_columns"]
        assert set(found.inputs) == set(ODD)
        for number, name in enumerate(ODD):
            feed = {found.inputs[each].name: [float(each == name)] for each in ODD}
            assert session.run(found.outputs[str(number)].name, feed) == [[1.0]]
    called = tf.saved_model.load(str(tmp_path)).signatures["serving_columns"]
    with pytest.raises(
        (TypeError, ValueError)
    ):  # TensorFlow makes one argument of "a b", "a_b" and "A_B"
        called(**given)
    safe = {safe_names.distinct(ODD)[name]: value for name, value in given.items()}
    for number in range(len(ODD)):
        assert called(**safe)[str(number)].numpy().item() == number


def test_columns_of_unlike_names_are_served_in_python(tmp_path):
    def total(**given):
        return {"sum": sum(given.values())}

    names = ("opened on", "région", "a/b", "价格", "Area", "area")
    specs = {name: tf.TensorSpec([None], tf.float32) for name in names}
    concrete = export._concrete(total, specs)
    tf.saved_model.save(tf.Module(), str(tmp_path), {"serving_columns": concrete})
    export.restore_input_names(tmp_path, {"serving_columns": specs})
    called = tf.saved_model.load(str(tmp_path)).signatures["serving_columns"]
    given = {name: tf.constant([10.0**n]) for n, name in enumerate(names)}
    assert called(**given)["sum"].numpy().tolist() == [111111]


@pytest.mark.full
def test_vocabularies_of_like_names_are_apart(tmp_path):
    names = ["a b", "a-b", "a.b", "a_b", "价格", "面积", "x" * 300]
    whole = "presence { min_fraction: 1 min_count: 1 } shape {}"
    path = tmp_path / "schema.pbtxt"
    kinds = dict.fromkeys(names, "BYTES") | {"y": "FLOAT"}
    lines = [f'feature {{ name: "{k}" type: {kind} {whole} }}' for k, kind in kinds.items()]
    path.write_text("\n".join(lines))
    task = Regression(dict.fromkeys(names, Vocabulary(size=2)), "y")
    rows = [{name: f"{name} {n}"[-20:] for name in names} | {"y": 0.0} for n in (1, 1, 2)]
    graph = transformed(task, path, rows, tmp_path, function=task.preprocess)
    raw = {name: tf.constant([row[name] for row in rows]) for name in (*names, "y")}
    found = graph.transform_features_layer()(raw)
    for name in names:
        assert found[name].numpy().ravel().tolist() == [0, 0, 1]


@pytest.mark.parametrize("name", ["taxi", "language_model"])
def test_another_task_s_family_is_refused(name):
    task = registries.task(name)
    with pytest.raises(SettingError) as caught:
        build_model.build("cnn", task.sample_arguments, task)
    assert (caught.value.setting, caught.value.value) == ("train.model", "cnn")


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"name": "binary_classification"}, "task.args"),
        ({"name": "taxi", "args": {"label": "fare"}}, "task.args"),
        ({"name": "regression", "args": {"lable": "fare"}}, "task.args"),
        ({"name": "regression", "args": {"features": {"a": "text"}}}, "task.args.features.a"),
        (
            {"name": "regression", "args": {"features": {"a": {"kind": "hashed", "bucket": 3}}}},
            "task.args.features.a",
        ),
        ({"name": "regression", "args": {"features": {"y": "numeric"}}}, "task.args.label"),
        (
            {"name": "binary_classification", "args": {"features": {"a": "numeric"}}},
            "task.args",
        ),
        ({"name": "nowhere.module:TASK"}, "task.name"),
        ({"name": "json:dumps"}, "task.name"),
        ({"name": "nowhere:TASK:X"}, "task.name"),
        ({"name": "regression", "args": {"features": ["a"], "label": "y"}}, "task.args.features"),
        (
            {"name": "regression", "args": {"features": {"a": "numeric"}, "weight": "y"}},
            "task.args.weight",
        ),
        (
            {"name": "regression", "args": {"features": INDICATED | {"a_missing": "numeric"}}},
            "task.args.features",
        ),
        (
            {"name": "regression", "args": {"features": INDICATED, "label": "a_missing"}},
            "task.args.label",
        ),
        (
            {"name": "binary_classification", "args": POSITIVE | {"positive": 1}},
            "task.args.positive",
        ),
        (
            {"name": "regression", "args": {"features": {"a": {"kind": "date", "format": "%Q"}}}},
            "task.args: format",
        ),
        (
            {"name": "regression", "args": {"features": {"a": {"kind": "multi_hot"}}}},
            "task.args: of",
        ),
        (
            {"name": "multi_label", "args": {"features": {"a": "numeric"}, "label": "tags"}},
            "task.args.label_vocabulary",
        ),
    ],
)
def test_wrong_arguments_are_refused(given, setting):
    error = refusal(TaskSettings, given)
    assert error.setting == setting


SCHEMA = """
feature { name: "x" type: %s }
feature { name: "y" type: FLOAT %s }
"""
KINDS = (tf.float32, tf.float32, tf.int64, tf.string, tf.int64)
WHOLE = "presence { min_fraction: 1.0 } shape {}"


@pytest.mark.parametrize(
    ("kind", "label", "feature"),
    [("BYTES", WHOLE, "x"), ("INT", "", "y"), ("INT", "presence { min_fraction: 1.0 }", "y")],
)
def test_a_schema_that_does_not_fit_is_refused(kind, label, feature, tmp_path):
    path = tmp_path / "schema.pbtxt"
    path.write_text(SCHEMA % (kind, label))
    with pytest.raises(UserError) as caught:
        Regression({"x": Numeric()}, "y").model_arguments(str(path))
    assert caught.value.record == feature


def test_a_schema_that_fits(tmp_path):
    path = tmp_path / "schema.pbtxt"
    path.write_text(SCHEMA % ("BYTES", WHOLE))
    task = Regression({"x": Vocabulary(5, oov=2)}, "y")
    found = task.model_arguments(str(path))
    assert found == {"numeric": (), "categorical": {"x": 8}, "outputs": 1}
    for name in ("regression", "taxi"):
        own = registries.task(name)
        assert own.model_arguments(own.schema_file) == own.sample_arguments


TEXTS = 'string_domain { name: "answer" value: "yes" value: "no" }'


@pytest.mark.parametrize(
    ("kind", "positive", "use"),
    [
        ("BYTES domain: 'answer'", "Yes", "one of no, yes"),
        ("BYTES string_domain { value: 'yes' }", "no", "one of yes"),
        ("FLOAT", "1", "a label of the type BYTES or INT"),
    ],
)
def test_a_positive_text_that_no_label_has(kind, positive, use, tmp_path):
    path = tmp_path / "schema.pbtxt"
    path.write_text(f'feature {{ name: "y" type: {kind} {WHOLE} }} feature {{ name: "x" }} {TEXTS}')
    task = BinaryClassification({"x": "hashed"}, "y", positive=positive)
    with pytest.raises(SettingError) as caught:
        task.model_arguments(str(path))
    assert (caught.value.setting, caught.value.suggestion) == ("task.args.positive", use)


@pytest.mark.parametrize("kind", ["BYTES domain: 'answer'", "BYTES", "INT"])
def test_a_positive_text_that_a_label_may_have(kind, tmp_path):
    path = tmp_path / "schema.pbtxt"
    path.write_text(f'feature {{ name: "y" type: {kind} {WHOLE} }} feature {{ name: "x" }} {TEXTS}')
    BinaryClassification({"x": "hashed"}, "y", positive="yes").model_arguments(str(path))


USERS = """
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
HOUSES = Regression({"area": "numeric"}, "price")


class Inverse(Regression):
    def __init__(self, factor=1):
        super().__init__({"area": "numeric"}, "price")
        self.unit = 1 / factor


INVERSE = Inverse()
"""


def test_a_user_s_task(tmp_path: pathlib.Path, monkeypatch):
    (tmp_path / "houses_of_a_test.py").write_text(USERS)
    monkeypatch.syspath_prepend(tmp_path)
    settings = TaskSettings(name="houses_of_a_test:HOUSES")
    assert settings.found.label == "price"
    changed = TaskSettings(
        name="houses_of_a_test:HOUSES", args={"features": {"area": "hashed"}, "label": "rent"}
    )
    assert changed.found.label == "rent"
    assert "houses_of_a_test" in registries.code({"task_name": settings.name})
    with pytest.raises(SettingError) as caught:
        registries.task("houses_of_a_test:INVERSE", {"factor": 0})
    assert (caught.value.setting, caught.value.value) == ("task.args", {"factor": 0})


def test_arguments_travel_as_json():
    args = {"features": {"a": {"kind": "vocabulary", "size": 5}}, "label": "b"}
    settings = TrainingSettings(task={"name": "regression", "args": args})
    assert isinstance(settings.flat()["task_args"], str)
    assert TrainingSettings.from_flat(settings.flat()) == settings


@pytest.mark.slow
def test_transform_makes_the_inputs(tmp_path):
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

    features = {
        "n": {"kind": "numeric", "missing_indicator": True},
        "b": {"kind": "bucketized", "buckets": 2},
        "i": {"kind": "identity", "size": 3},
        "v": {"kind": "vocabulary", "size": 2, "oov": 1},
        "h": {"kind": "hashed", "buckets": 4},
    }
    task = BinaryClassification(features, "y", weight="w", positive="yes")
    raw = [
        {"n": [1.0], "b": [1.0], "i": [0], "v": ["a"], "h": [7]},
        {"n": [3.0], "b": [2.0], "i": [2], "v": ["a"], "h": [8]},
        {"n": [], "b": [], "i": [], "v": [], "h": []},
        {"n": [5.0], "b": [9.0], "i": [3], "v": ["b"], "h": [7]},
    ]
    raw = [row | {"y": "yes" if n % 2 else "no", "w": n} for n, row in enumerate(raw)]
    spec = {name: tf.io.VarLenFeature(kind) for name, kind in zip("nbivh", KINDS, strict=True)} | {
        "y": tf.io.FixedLenFeature([], tf.string),
        "w": tf.io.FixedLenFeature([1], tf.int64),
    }
    raw = [row | {"w": [row["w"]]} for row in raw]
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(spec))
    with tft_beam.Context(temp_dir=str(tmp_path)):
        (rows, _), _ = (raw, metadata) | tft_beam.AnalyzeAndTransformDataset(task.preprocess)
    columns = {name: [np.ravel(row[name]).tolist() for row in rows] for name in rows[0]}
    deviation = np.sqrt(8 / 3)
    np.testing.assert_allclose(
        np.ravel(columns["n"]), np.array([-2, 0, 0, 2]) / deviation, rtol=1e-6
    )
    assert np.ravel(columns["n_missing"]).tolist() == [0, 0, 1, 0]
    assert np.ravel(columns["b"]).tolist()[2] == 2
    assert np.ravel(columns["i"]).tolist() == [0, 2, 3, 3]
    assert np.ravel(columns["v"]).tolist() == [0, 0, 3, 1]
    hashed = np.ravel(columns["h"]).tolist()
    assert hashed[0] == hashed[3] < 4 and hashed[2] == 4
    assert np.ravel(columns["y"]).tolist() == [0, 1, 0, 1]
    assert np.ravel(columns["w"]).tolist() == [0, 1, 2, 3]
    assert set(columns) == set(task.features)
