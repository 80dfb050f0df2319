"""A model_fn as task and model: what it may do, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft import named_objects
from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.settings import TrainSettings

E = sc.estimator
EVAL, TRAIN, PREDICT = E.ModeKeys.EVAL, E.ModeKeys.TRAIN, E.ModeKeys.PREDICT


def spec(mode, outputs, labels, **more):
    if mode == PREDICT:
        return E.EstimatorSpec(mode, outputs)
    loss = tf.reduce_mean((outputs[:, 0] - labels) ** 2)
    return E.EstimatorSpec(mode, **{"loss": loss, **more})


def plain(features, labels, mode):
    return spec(mode, keras.layers.Dense(1, name="head")(features["a"]), labels)


def built(model_fn, metrics=(), **options):
    found = E.from_model_fn(
        model_fn, features={"a": "numeric"}, labels="y", metrics=dict(metrics), **options
    )
    train = TrainSettings(model=named_objects.put("model", found.model), augment="none")
    return found, assemble(train, found.task.sample_arguments, task=found.task)


def inputs(task, count=4):
    found, _ = task.noise(task.sample_arguments, count, np.random.default_rng(0))
    return found


def test_losses_and_predictions():
    found, model = built(plain)
    rows = inputs(found.task)
    kernel = model.get_weights()[0]
    predicted = rows["a"] @ kernel
    outputs = model(rows)
    np.testing.assert_allclose(outputs["predictions"]["predictions"], predicted, rtol=1e-6)
    loss = np.mean((predicted[:, 0] - rows["y"]) ** 2)
    np.testing.assert_allclose(outputs["losses"], [loss] * 4, rtol=1e-5)
    served = found.task.outputs(outputs, "")
    np.testing.assert_allclose(served["predictions"], predicted, rtol=1e-6)


def test_a_request_has_no_label():
    found, model = built(plain)
    batch = found.task.batch({"a": tf.constant([[1.0], [2.0]])}, None)
    assert model(batch.inputs)["predictions"]["predictions"].shape == (2, 1)


def test_a_loss_may_have_a_value_for_each_example():
    def squares(features, labels, mode):
        outputs = keras.layers.Dense(1)(features["a"])
        if mode == PREDICT:
            return E.EstimatorSpec(mode, outputs)
        return E.EstimatorSpec(mode, loss=(outputs[:, 0] - labels) ** 2)

    found, model = built(squares)
    rows = inputs(found.task)
    rows["_weights"][1] = 0
    losses = np.asarray(model(rows)["losses"])
    assert losses[1] == 0 and len(set(losses)) == 4


def test_the_weights_are_made_once():
    _, model = built(plain)
    before = [variable.path for variable in model.variables]
    rows = {"a": np.ones((2, 1), np.float32), "y": np.ones(2, np.float32)}
    rows["_weights"] = np.ones(2, np.float32)
    first = model(rows, training=True)["losses"]
    again = tf.function(lambda: model(rows, training=True)["losses"])()
    np.testing.assert_array_equal(first, again)
    assert [variable.path for variable in model.variables] == before
    assert before == ["model_fn/head/kernel", "model_fn/head/bias"]


def test_nothing_of_the_process_changes():
    before = keras.layers.Layer.__call__, keras.random.SeedGenerator.__init__
    built(plain)
    with pytest.raises(UserError):
        built(lambda features, labels, mode: None)
    assert (keras.layers.Layer.__call__, keras.random.SeedGenerator.__init__) == before


def test_a_checkpoint_of_the_model_fn(tmp_path):
    """The names of get_variable are those in the checkpoint."""

    def model_fn(features, labels, mode):
        with tf.compat.v1.variable_scope("net"):
            kernel = tf.compat.v1.get_variable("kernel", [1, 1], trainable=True)
        return spec(mode, features["a"] @ kernel, labels)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("net/kernel", initializer=np.float32([[7]]), use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        prefix = tf.compat.v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    _, model = built(model_fn)
    loaded = sc.estimator.load(prefix, model)
    assert {path: value.tolist() for path, value in loaded.items()} == {
        "model_fn/net/kernel": [[7]]
    }


def on_a_device(features, labels, mode):
    with tf.device("CPU:0"):
        outputs = tf.matmul(features["a"], [[1.0]])
    return spec(mode, outputs + tf.Variable(1.0), labels)


def on_a_device_in_training(features, labels, mode):
    with tf.device("CPU:0" if mode == TRAIN else None):
        outputs = tf.matmul(features["a"], [[1.0]])
    return spec(mode, outputs + tf.Variable(1.0), labels)


def drops(features, labels, mode):
    hidden = tf.nn.dropout(features["a"], 0.5) if mode == TRAIN else features["a"]
    return spec(mode, keras.layers.Dense(1)(hidden), labels)


def minimizes(features, labels, mode):
    found = plain(features, labels, mode)
    if mode == TRAIN:
        optimizer = tf.compat.v1.train.AdamOptimizer()
        return found._replace(train_op=optimizer.minimize(found.loss))
    return found


def old_layers(features, labels, mode):
    return spec(mode, tf.layers.dense(features["a"], 1), labels)


def old_contrib(features, labels, mode):
    return spec(mode, tf.contrib.layers.fully_connected(features["a"], 1), labels)


def old_spec(features, labels, mode):
    return tf.estimator.EstimatorSpec(mode)


def with_train_op(features, labels, mode):
    return plain(features, labels, mode)._replace(train_op=tf.constant(1))


def total(features, labels, mode):
    outputs = keras.layers.Dense(1, kernel_initializer="ones")(features["a"])
    loss = 0.0 if mode == PREDICT else tf.reduce_sum((outputs[:, 0] - labels) ** 2)
    return spec(mode, outputs, labels if mode != PREDICT else None, loss=loss)


def stateful_metric(features, labels, mode):
    return plain(features, labels, mode)._replace(eval_metric_ops={"mse": (1, 2)})


def unnamed_metric(features, labels, mode):
    return plain(features, labels, mode)._replace(eval_metric_ops={"other": 1})


def no_loss(features, labels, mode):
    return plain(features, labels, mode)._replace(loss=None)


def regularized(features, labels, mode):
    kernel = tf.compat.v1.get_variable("w", [1, 1], regularizer=keras.regularizers.L2(0.1))
    return spec(mode, features["a"] @ kernel, labels)


CASES = {
    "tf.device": on_a_device,
    "tf.nn.dropout or tf.random": drops,
    "optimizer.minimize": minimizes,
    "tf.layers": old_layers,
    "tf.contrib": old_contrib,
    "tf.estimator": old_spec,
    "train_op": with_train_op,
    "loss": total,
    "the metric mse with a state": stateful_metric,
    "eval_metric_ops with other": unnamed_metric,
    "no loss in the mode 'eval'": no_loss,
    "w": regularized,
}


def test_a_device_in_training_alone_is_refused():
    with pytest.raises(UserError) as caught:
        built(on_a_device_in_training)
    assert caught.value.value == "tf.device"


@pytest.mark.parametrize("value", CASES)
def test_what_estimators_had_is_refused_with_its_replacement(value):
    metrics = {"mse": "min"} if "metric" in value else {}
    with pytest.raises(UserError) as caught:
        built(CASES[value], metrics)
    assert (caught.value.setting, caught.value.value) == ("train.model", value)


@pytest.mark.parametrize(
    ("setting", "arguments"),
    [
        ("model_fn", {"model_fn": 3}),
        ("metrics", {"metrics": ["a"]}),
        ("metrics: a", {"metrics": {"a": "largest"}}),
        ("task.args.label", {"labels": "a"}),
    ],
)
def test_wrong_arguments_are_refused(setting, arguments):
    given_ = {"model_fn": plain, "features": {"a": "numeric"}, "labels": "y", **arguments}
    with pytest.raises(SettingError) as caught:
        E.from_model_fn(given_.pop("model_fn"), **given_)
    assert caught.value.setting == setting
