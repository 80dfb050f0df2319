"""Checkpoints of Estimators, with the names that each canned Estimator gives its variables."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.initial_weights import source
from stagecraft.trainer_module.models.initial_weights.loading import MismatchError
from stagecraft.trainer_module.models.initial_weights.source import InitialWeightsError

E = sc.estimator
JOB = E.Listed(["teacher", "nurse", "cook"])
GROUP = E.Bucketized(source="age", boundaries=[18, 65])
LINEAR = {"age": E.Numeric(), "job": JOB, "both": E.Crossed(["job", GROUP], 7), "group": GROUP}
DEEP = {
    "job": E.Embedding(JOB, 2),
    "age": E.Numeric(),
    "town": E.Indicator(E.Hashed(4)),
    "group": GROUP,
    "from": E.Embedding(E.Hashed(5), 3, shared="from_to_shared_embedding"),
    "to": E.Embedding(E.Hashed(5), 3, shared="from_to_shared_embedding"),
}
UNITS = [6, 4]
ROWS = 9
INPUT_LAYER = "dnn/input_from_feature_columns/input_layer"

MODELS = {
    "LinearRegressor": lambda: E.LinearRegressor(LINEAR, label="y"),
    "LinearClassifier": lambda: E.LinearClassifier(LINEAR, label="y", n_classes=3),
    "DNNRegressor": lambda: E.DNNRegressor(UNITS, DEEP, label="y"),
    "DNNClassifier": lambda: E.DNNClassifier(UNITS, DEEP, label="y", activation_fn="tanh"),
    "DNNLinearCombinedRegressor": lambda: E.DNNLinearCombinedRegressor(
        LINEAR, dnn_feature_columns=DEEP, dnn_hidden_units=UNITS, label="y"
    ),
    "DNNLinearCombinedClassifier": lambda: E.DNNLinearCombinedClassifier(
        LINEAR, dnn_feature_columns=DEEP, dnn_hidden_units=UNITS, label="y", n_classes=3
    ),
}


def variables(name: str, outputs: int) -> dict[str, np.ndarray]:
    """Random values by the name in Estimator's checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {}
    if "Linear" in name:
        shapes |= {
            "linear/linear_model/age/weights": (1, outputs),
            "linear/linear_model/job/weights": (3, outputs),
            "linear/linear_model/age_bucketized/weights": (3, outputs),
            "linear/linear_model/age_bucketized_X_job/weights": (7, outputs),
            "linear/linear_model/bias_weights": (outputs,),
        }
    if "DNN" in name:
        shapes |= {
            f"{INPUT_LAYER}/job_embedding/embedding_weights": (3, 2),
            f"{INPUT_LAYER}/from_to_shared_embedding/embedding_weights": (5, 3),
            "dnn/hiddenlayer_0/kernel": (1 + 3 + 3 + 2 + 3 + 4, 6),
            "dnn/hiddenlayer_0/bias": (6,),
            "dnn/hiddenlayer_1/kernel": (6, 4),
            "dnn/hiddenlayer_1/bias": (4,),
            "dnn/logits/kernel": (4, outputs),
            "dnn/logits/bias": (outputs,),
        }
    draw = np.random.default_rng(4)
    return {each: draw.standard_normal(shape) for each, shape in shapes.items()}


def write(values: dict[str, np.ndarray], folder: pathlib.Path) -> str:
    """A checkpoint of TensorFlow 1, with slots and the step."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in values.items():
            tf.compat.v1.get_variable(
                name, initializer=value.astype(np.float32), use_resource=False
            )
            slot = f"{name}/t_0/Adagrad" if "hidden" in name else f"{name}/Ftrl_1"
            tf.compat.v1.get_variable(slot, initializer=np.ones_like(value), use_resource=False)
        tf.compat.v1.get_variable("global_step", initializer=np.int64(12), use_resource=False)
        tf.compat.v1.get_variable("beta1_power", initializer=0.9, use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        return str(saver.save(session, str(folder / "model.ckpt"), global_step=12))


def rows(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Of a table; zeros for a missing value, whose id comes after the last row."""
    return np.concatenate([table, np.zeros((1, table.shape[1]))])[ids[:, 0]]


def predictions(
    name: str, given: dict[str, np.ndarray], inputs: dict[str, np.ndarray]
) -> np.ndarray:
    """The logits by the formulas of the paper, in float64."""
    values = {key: value.astype(np.float32).astype(np.float64) for key, value in given.items()}
    total: np.ndarray = np.zeros(())
    if "Linear" in name:
        front = "linear/linear_model"
        total = (
            inputs["age"] @ values[f"{front}/age/weights"]
            + rows(values[f"{front}/job/weights"], inputs["job"])
            + rows(values[f"{front}/age_bucketized/weights"], inputs["group"])
            + rows(values[f"{front}/age_bucketized_X_job/weights"], inputs["both"])
            + values[f"{front}/bias_weights"]
        )
    if "DNN" in name:
        shared = values[f"{INPUT_LAYER}/from_to_shared_embedding/embedding_weights"]
        hidden = np.concatenate(  # in the order of the columns' names
            [
                inputs["age"],
                rows(np.eye(3), inputs["group"]),
                rows(shared, inputs["from"]),
                rows(values[f"{INPUT_LAYER}/job_embedding/embedding_weights"], inputs["job"]),
                rows(shared, inputs["to"]),
                rows(np.eye(4), inputs["town"]),
            ],
            axis=1,
        )
        activation = np.tanh if name == "DNNClassifier" else lambda x: np.maximum(x, 0)
        for layer in ("hiddenlayer_0", "hiddenlayer_1"):
            kernel, bias = values[f"dnn/{layer}/kernel"], values[f"dnn/{layer}/bias"]
            hidden = activation(hidden @ kernel + bias)
        total = total + hidden @ values["dnn/logits/kernel"] + values["dnn/logits/bias"]
    return total


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_what_the_estimator_predicted(name, tmp_path):
    canned = MODELS[name]()
    arguments = canned.task.sample_arguments
    given = variables(name, arguments["outputs"])
    prefix = write(given, tmp_path)
    settings = canned.settings(initial_weights=prefix)
    model = assemble(settings.train, arguments, precision="float64", task=canned.task)
    inputs, _ = canned.task.noise(arguments, ROWS, np.random.default_rng(5))
    for column, ids in arguments["categorical"].items():
        inputs[column][0] = ids - 1  # missing
    inputs["age"] = inputs["age"].astype(np.float64)
    expected = predictions(name, given, inputs)
    # Float64: sums of at most 30 products of values of about 1.
    np.testing.assert_allclose(model(inputs), expected, rtol=0, atol=1e-12)
    loaded = sc.estimator.load(prefix, canned)
    assert loaded.keys() == {variable.path for variable in model.weights}
    for variable in model.weights:
        np.testing.assert_array_equal(variable, loaded[variable.path])


def test_parts_of_a_variable_are_joined(tmp_path):
    canned = E.LinearRegressor({"job": JOB}, label="y")
    front = "linear/linear_model"
    values = {
        f"{front}/job/weights/part_0": np.array([[1.0], [2.0]]),
        f"{front}/job/weights/part_1": np.array([[3.0]]),
        f"{front}/bias_weights/part_0": np.array([4.0]),
    }
    loaded = sc.estimator.load(write(values, tmp_path), canned)
    np.testing.assert_array_equal(loaded["linear_job/embeddings"], [[1], [2], [3]])
    np.testing.assert_array_equal(loaded["linear_bias/bias"], [4])
    del values[f"{front}/job/weights/part_0"]
    with pytest.raises(InitialWeightsError) as caught:
        sc.estimator.load(write(values, tmp_path), canned)
    assert f"{front}/job/weights/part_0" in caught.value.problem


def test_a_batch_normalization(tmp_path):
    canned = E.DNNRegressor([3], {"age": E.Numeric()}, label="y", batch_norm=True)
    front = "dnn/hiddenlayer_0"
    values = {
        f"{front}/kernel": np.ones((1, 3)),
        f"{front}/bias": np.ones(3),
        **{f"{front}/batchnorm_0/{each}": np.ones(3) for each in ("gamma", "beta")},
        **{f"{front}/batchnorm_0/moving_{each}": np.ones(3) for each in ("mean", "variance")},
        "dnn/logits/kernel": np.ones((3, 1)),
        "dnn/logits/bias": np.ones(1),
    }
    loaded = sc.estimator.load(write(values, tmp_path), canned)
    assert set(loaded) == {variable.path for variable in canned.build().weights}


def test_names_of_a_model_of_your_own(tmp_path):
    given = keras.Input((2,))
    model = keras.Model(given, keras.layers.Dense(3, name="head")(given))
    values = {"head/kernel": np.ones((2, 3)), "head/bias": np.full(3, 2.0)}
    loaded = sc.estimator.load(write(values, tmp_path), model)
    assert {path: value.shape for path, value in loaded.items()} == {
        "head/kernel": (2, 3),
        "head/bias": (3,),
    }


def test_another_vocabulary_is_refused(tmp_path):
    """The Estimator had ids for other values; a column has another name."""
    front = "linear/linear_model"
    values = {
        f"{front}/job/weights": np.ones((5, 1)),
        f"{front}/office/weights": np.ones((3, 1)),
        f"{front}/bias_weights": np.ones(1),
    }
    canned = E.LinearRegressor({"job": JOB}, label="y")
    with pytest.raises(MismatchError) as caught:
        sc.estimator.load(write(values, tmp_path), canned)
    assert caught.value.shapes == (("linear_job/embeddings", (5, 1), (3, 1)),)
    assert caught.value.unknown == (f"{front}/office/weights",)


def test_what_is_no_checkpoint_of_an_estimator_is_refused(tmp_path):
    canned = E.LinearRegressor({"job": JOB}, label="y")
    objects = tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / "object.ckpt"))
    prefix = write({"linear/linear_model/bias_weights": np.ones(1)}, tmp_path)
    damaged = tmp_path / "damaged.ckpt.index"
    damaged.write_bytes(b"no table")
    weights = tmp_path / "some.weights.h5"
    canned.build().save_weights(weights)
    for path in (
        objects,
        tmp_path,
        f"{prefix}.index",
        f"{prefix}.data-00000-of-00001",
        tmp_path / "damaged.ckpt",
        tmp_path / "nowhere",
        weights,
    ):
        with pytest.raises(InitialWeightsError) as caught:
            sc.estimator.load(path, canned)
        assert caught.value.setting == "train.initial_weights"


def test_the_files_of_a_checkpoint(tmp_path):
    """The Trainer's cache key depends on them."""
    prefix = write({"a": np.ones(1)}, tmp_path)
    write({"a": np.ones(1)}, tmp_path.joinpath("other"))
    files = source.find(prefix).files()
    assert [file.name for file in files] == [
        "model.ckpt-12.data-00000-of-00001",
        "model.ckpt-12.index",
    ]
