"""Canned models against TensorFlow's own feature columns, which wrote Estimators' checkpoints."""

import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft.trainer_module.models.assemble import assemble

E = sc.estimator
JOBS = ["teacher", "nurse", "cook"]
AGES = np.array([[20.0], [18.0], [70.0], [65.0], [3.0]], np.float32)
RAW = {
    "age": AGES,
    "job": np.array([["nurse"], ["pilot"], ["teacher"], ["cook"], ["cook"]]),
    "from": np.array([["Ulm"], ["Bonn"], ["Kiel"], ["Ulm"], ["Hof"]]),
    "to": np.array([["Bonn"], ["Ulm"], ["Ulm"], ["Hof"], ["Kiel"]]),
}
BOUNDARIES = [18.0, 65.0]
GROUP = E.Bucketized(source="age", boundaries=BOUNDARIES)
JOB = E.Listed(JOBS)
SHARED = "from_to_shared_embedding"


def model_of(keys):
    return E.DNNLinearCombinedRegressor(
        {
            "age": E.Numeric(normalizer="none"),
            "job": JOB,
            "both": E.Crossed(keys, 7),
            "from": E.Hashed(5),
        },
        dnn_feature_columns={
            "to": E.Embedding(E.Hashed(5), 3, SHARED),
            "from": E.Embedding(E.Hashed(5), 3, SHARED),
            "group": GROUP,
            "job": E.Embedding(JOB, 2),
            "age": E.Numeric(normalizer="none"),
            "job_too": E.Indicator(E.Listed(JOBS, source="job")),
        },
        dnn_hidden_units=[4],
        label="y",
    )


def by_tensorflow(folder, sparse) -> tuple[np.ndarray, str]:
    """Logits of the model with TensorFlow's feature columns, and its checkpoint."""
    columns = tf.compat.v1.feature_column
    age = columns.numeric_column("age")
    group = columns.bucketized_column(age, BOUNDARIES)
    job = columns.categorical_column_with_vocabulary_list("job", JOBS)
    towns = [columns.categorical_column_with_hash_bucket(name, 5) for name in ("from", "to")]
    both = columns.crossed_column(["job", group], 7)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {name: tf.constant(value) for name, value in RAW.items()}
        if sparse:
            features["job"] = tf.sparse.from_dense(features["job"])
        with tf.compat.v1.variable_scope("linear"):
            linear = columns.linear_model(features, [age, job, both, towns[0]])
        with tf.compat.v1.variable_scope("dnn"):
            with tf.compat.v1.variable_scope("input_from_feature_columns"):
                deep = [
                    *columns.shared_embedding_columns(towns, 3),
                    columns.embedding_column(job, 2),
                    columns.indicator_column(job),
                    group,
                    age,
                ]
                hidden = columns.input_layer(features, deep)
            hidden = tf.nn.relu(_dense("hiddenlayer_0", hidden, 4))
            logits = linear + _dense("logits", hidden, 1)
        session.run(
            [
                tf.compat.v1.global_variables_initializer(),
                tf.compat.v1.tables_initializer(),
            ]
        )
        draw = np.random.default_rng(2)
        for variable in tf.compat.v1.global_variables():  # those of linear models are zeros
            variable.load(draw.standard_normal(variable.shape), session)
        prefix = tf.compat.v1.train.Saver().save(session, str(folder / "model.ckpt"), 5)
        return session.run(logits), str(prefix)


def _dense(name, given, units):
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", [given.shape[-1], units], use_resource=False)
        return given @ kernel + tf.compat.v1.get_variable("bias", [units], use_resource=False)


def transformed(model) -> dict[str, np.ndarray]:
    """What Transform makes of the raw features; a Listed column has a table, made by hand here."""
    raw = {name: tf.constant(value) for name, value in RAW.items()}
    inputs = {}
    for name, column in model.task.columns.items():
        if isinstance(column, E.Listed):
            places = [JOBS.index(job) if job in JOBS else 3 for job in RAW["job"][:, 0]]
            inputs[name] = np.array(places)[:, None]
        else:
            inputs |= {key: np.asarray(value) for key, value in column.result(name, raw).items()}
    return inputs


@pytest.mark.skipif(
    not hasattr(tf.compat.v1, "feature_column"), reason="this TensorFlow has no feature columns"
)
@pytest.mark.parametrize(
    ("sparse", "keys"), [(True, ["job", GROUP]), (False, [GROUP, "job"])], ids=["sparse", "dense"]
)
def test_predictions_are_those_of_tensorflow_s_feature_columns(sparse, keys, tmp_path):
    """TensorFlow crosses the sparse features before the dense ones; buckets are sparse."""
    expected, prefix = by_tensorflow(tmp_path, sparse)
    canned = model_of(keys)
    arguments = canned.task.sample_arguments
    settings = canned.settings(initial_weights=prefix)
    model = assemble(settings.train, arguments, precision="float64", task=canned.task)
    found = np.asarray(model(transformed(canned)))
    # TensorFlow computes in float32: sums of at most 20 terms of at most 70 * 3 * 3 each.
    np.testing.assert_allclose(found, expected, rtol=0, atol=20 * 630 * 2.0**-24)
