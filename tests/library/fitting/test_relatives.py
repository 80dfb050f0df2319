"""``engine``, ``plan`` and ``virtual_devices``."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft.trainer_module.models import blank

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((20, 2)).astype(np.float32)


pytestmark = pytest.mark.usefixtures("as_before")


def build() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def test_an_engine_steps_as_fit():
    model, twin = build(), build()
    twin.set_weights(model.get_weights())
    it = sc.engine(model, loss="mse", optimizer=keras.optimizers.Adam(0.01), metrics=["mae"])
    state = it.state()
    logs = [it.train_step((X[at : at + 8], Y[at : at + 8])) for at in (0, 8, 16)]
    assert it.step == 3 and it.learning_rate == pytest.approx(0.01)
    assert logs[0].keys() == {"loss", "mae"}
    trained = it.weights()
    evaluated = it.evaluate(X, Y)
    assert it.evaluate(tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)) == pytest.approx(
        evaluated
    )
    np.testing.assert_allclose(it.predict(X), it.model()(X), rtol=1e-6)
    it.restore(state)
    assert it.step == 0
    for batch in ((X,), X, {"x": X}):
        with pytest.raises(sc.SettingError) as caught:
            it.train_step(batch)
        assert caught.value.setting == "batch"
    with pytest.raises(sc.SettingError):
        it.restore({"step": np.array(1)})
    optimizer = keras.optimizers.Adam(0.01)
    sc.fit(twin, X, Y, loss="mse", optimizer=optimizer, batch_size=8, shuffle=False, verbose=0)
    for one, two in zip(trained, twin.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("rows", [1, 7, 20])
def test_an_engine_takes_batches_of_any_size(rows):
    """No copies fill up a step, which would count in statistics and penalties."""

    def normalized() -> keras.Model:
        layers = [keras.layers.BatchNormalization(), keras.layers.ActivityRegularization(0.1)]
        return keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(2)])

    model, twin = normalized(), normalized()
    twin.set_weights(model.get_weights())
    twin.compile("sgd", "mse")
    expected = twin.train_on_batch(X[:rows], Y[:rows])
    assert (
        sc.engine(model, loss="mse", optimizer="sgd").train_step((X[:rows], Y[:rows]))["loss"]
        == expected
    )
    for one, two in zip(model.variables, twin.variables, strict=True):
        assert np.array_equal(one, two)


def test_an_engine_without_variables_has_no_state():
    it = sc.engine(keras.Sequential([keras.layers.Dense(2)]), loss="mse", optimizer="sgd")
    with pytest.raises(sc.SettingError) as caught:
        it.state()
    assert caught.value.setting == "model"
    it.train_step((X, Y))
    assert len(it.state()) > 2


def test_parity_refuses_what_has_no_effect():
    grid = sc.Parallel(strategy="grid", stages=2)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    for x, more, setting in (
        (batches, {"y": Y}, "y"),
        (batches, {"sample_weight": Y[:, 0]}, "sample_weight"),
        (batches, {"batch_size": 4}, "batch_size"),
        (X, {}, "y"),
        (X[:0], {"y": Y[:0]}, "x"),
        (X, {"y": Y[:5]}, "y"),
        (X, {"y": Y, "sample_weight": Y[:5, 0]}, "sample_weight"),
    ):
        with pytest.raises(sc.SettingError) as caught:
            sc.check_parity(build(), x, parallel=grid, loss="mse", **more)
        assert caught.value.setting == setting
    with pytest.raises(sc.SettingError) as unknown:
        named = sc.Parallel(strategy="grid", stages=2, cuts=["elsewhere"])
        sc.check_parity(build(), X, Y, parallel=named, loss="mse")
    assert unknown.value.setting == "parallel.cuts"
    with pytest.raises(sc.SettingError) as other:
        parts = sc.Parallel(accumulate=2, precision="float64")
        sc.check_parity(build(), X, Y, parallel=parts, loss="mse")
    assert other.value.setting == "parallel.precision"


def test_an_engine_refuses_several_processes():
    with pytest.raises(sc.SettingError) as caught:
        two = sc.Parallel(strategy="multi_worker_mirrored", workers=2)
        sc.engine(build(), loss="mse", parallel=two)
    assert caught.value.setting == "parallel.workers"


def deep() -> keras.Model:
    inputs = hidden = keras.Input((4,))
    for _ in range(4):
        hidden = keras.layers.Dense(8, "relu")(hidden)
    return keras.Model(inputs, [keras.layers.Dense(2)(hidden), keras.layers.Dense(1)(hidden)])


@pytest.mark.parametrize("model", [deep, deep()], ids=["function", "model"])
def test_a_plan(model):
    parallel = sc.Parallel(strategy="grid", stages=2, microbatches=4)
    found = sc.plan(model, parallel, "2xT4-16GB", batch_size=64)
    assert len(found.stages) == 2 and len(found.cuts) == 1
    assert found.step_seconds > 0 and found.memory_bytes > 0 and 0 < found.speedup < 2
    assert found.bubble == pytest.approx(1 / 5)
    assert "T4-16GB:0 → T4-16GB:1" in str(found) and "<pre>" in found._repr_html_()
    assert repr(found) == str(found)
    assert sc.plan(model, sc.Parallel()).step_seconds is None
    with pytest.raises(sc.UserError) as caught:
        sc.plan(model, parallel, "T4-16GB")
    assert (caught.value.setting, caught.value.suggestion) == ("devices", "devices=2xT4-16GB")
    with pytest.raises(sc.UserError) as caught:
        sc.plan(keras.Sequential([keras.layers.Dense(1)]), parallel)
    assert caught.value.setting == "input_shape"


def texts() -> keras.Model:
    ids, mask = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="bool")
    hidden = keras.layers.Embedding(9, 8)(ids)
    hidden = keras.layers.MultiHeadAttention(2, 4)(hidden, hidden, key_mask=mask)
    return keras.Model({"ids": ids, "mask": mask}, keras.layers.Dense(9)(hidden))


def test_a_plan_of_a_batch_that_does_not_divide():
    with pytest.raises(sc.UserError) as caught:
        sc.plan(build(), sc.Parallel(strategy="grid", stages=2, microbatches=4), batch_size=30)
    assert caught.value.setting == "train.batch_size"


def test_sizes_that_a_model_leaves_open():
    parallel = sc.Parallel(strategy="grid", stages=2)
    short, long = (sc.plan(texts, parallel, "2xT4-16GB", input_shape=(n,)) for n in (32, 64))
    flops = [sum(stage.flops for stage in each.stages) for each in (short, long)]
    kept = [sum(stage.activation_bytes for stage in each.stages) for each in (short, long)]
    assert 2 < flops[1] / flops[0] < 4 and 2 < kept[1] / kept[0] < 4
    by_name = {"ids": (64,), "mask": (64,)}
    found = sc.plan(texts(), parallel, "2xT4-16GB", input_shape=by_name)
    assert [each.flops for each in found.stages] == [each.flops for each in long.stages]
    assert sc.plan(texts, parallel, "2xT4-16GB", input_shape=64).step_seconds == found.step_seconds


@pytest.mark.parametrize("given", [None, (3, 4), {"ids": (64,)}, {"words": (64,)}, [(64,)]])
def test_sizes_that_are_missing(given):
    with pytest.raises(sc.SettingError) as caught:
        sc.plan(texts, sc.Parallel(), input_shape=given)
    assert caught.value.setting == "input_shape"
    assert caught.value.suggestion == "input_shape={'ids': (1024,), 'mask': (1024,)}"


def test_a_search_says_that_it_knows_no_sizes(caplog):
    model = texts()
    model.compile("sgd", "mse")
    sc.engine(model, parallel=sc.Parallel(strategy="auto"))
    assert any("sizes of 1" in each.message for each in caplog.records)


def test_open_sizes_of_models_with_loops_and_of_subclassed_models():
    inner = keras.Sequential(
        [
            keras.Input((None, 8)),
            keras.layers.Dense(8),
            keras.layers.LSTM(8, return_sequences=True),
        ]
    )
    given = keras.Input((None,), dtype="int32")
    hidden = inner(keras.layers.Embedding(9, 8)(given))
    model = keras.Model(given, keras.layers.Dense(1)(keras.layers.LSTM(8)(hidden)))
    sizes = [sc.plan(model, sc.Parallel(), input_shape=(n,)).memory_bytes for n in (32, 64)]
    assert sizes[1] > 1.2 * sizes[0]

    class Mean(keras.Model):
        def call(self, x):
            return keras.ops.mean(x, axis=1, keepdims=True)

    own = Mean()
    own(keras.Input((None,)))
    assert sc.plan(own, sc.Parallel(), input_shape=(64,)).strategy


def test_a_plan_of_a_function_makes_no_weights():
    made = []

    def large() -> keras.Model:
        given = keras.Input((20_000,))
        hidden = keras.layers.Dense(20_000)(given)
        made.append(keras.Model(given, keras.layers.Dense(10)(hidden)))
        made[-1].compile(keras.optimizers.Adam(), "mse")
        return made[-1]

    found = sc.plan(large, sc.Parallel(strategy="grid", stages=2), "2xA100-40GB")
    assert sum(stage.parameters for stage in found.stages) > 4e8
    (model,) = made
    assert all(blank.are_blank([each]) for each in model.variables)


def test_more_virtual_stages_than_the_model_has_parts():
    parallel = sc.Parallel(
        strategy="grid", stages=2, virtual_stages=4, microbatches=4, virtual_devices=2
    )
    with pytest.raises(sc.SettingError) as caught:
        sc.plan(build(), parallel, devices="2xT4-16GB")
    assert (caught.value.setting, caught.value.value) == ("parallel.virtual_stages", 4)


def test_virtual_devices_after_the_start_of_tensorflow():
    tf.zeros(1).numpy()
    with pytest.raises(sc.UserError) as caught:
        sc.virtual_devices(99)
    assert caught.value.suggestion == "stagecraft.virtual_devices(99)"
    with pytest.raises(sc.SettingError):
        sc.virtual_devices(0)
    with pytest.raises(sc.SettingError) as refused:
        sc.check_parity(build(), X, Y, parallel=sc.Parallel(), loss="mse")
    assert refused.value.setting == "parallel.strategy"
