"""Weights that training freezes after some steps, on each kind of topology."""

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import driving
import keras
import networks
import numpy as np
import pytest
import sharded
import tensorflow as tf
from driving import BATCH, GRID, MIRRORED, ONE, STAGES, STEPS, assert_no_drift, label, rare

from stagecraft.trainer_module.engines import placement_check
from stagecraft.trainer_module.models.layers.random_state import floatx

AFTER = {"^conv0/": 0.34, "dense/bias": 0.5}
"""Freezes the first layer after step 2, and a bias after step 3."""

FIRST = {"conv0/kernel", "conv0/bias"}
TRAIN: dict[str, Any] = {
    "freeze_after": AFTER,
    "clip_norm": 0.1,
    "weight_decay": 0.1,
    "optimizer": "adamw",
}
TOPOLOGIES: list[Any] = [
    MIRRORED,
    rare({"strategy": "central_storage", "replicas": 2}),
    {**STAGES, "stages": 2},
    rare(STAGES),
    rare(GRID),
    {**GRID, "zero": 1},
    rare({**STAGES, "remat": True}),
    {**ONE, "accumulate": 2},
    rare({**ONE, "remat": True}),
    rare({**ONE, "jit": True}),
    rare({**STAGES, "jit": True}),
    rare({**MIRRORED, "accumulate": 2, "jit": True, "remat": True}),
]

FLOAT64 = 1e-12
"""The sums over parts have another order, and adamw divides by small square roots."""


def make(parallel: dict[str, Any], model: str = "plain", **train: Any) -> Any:
    return driving.make({"precision": "float64", **parallel}, model, **{**TRAIN, **train})


def trained(engine: Any, steps: int = STEPS, start: int = 0) -> dict[str, np.ndarray]:
    engine.train(driving.feed(engine, start=start), steps)
    state: dict[str, np.ndarray] = engine.state()
    return state


def of(state: Any, names: set[str], kind: str = "model") -> dict[str, bytes]:
    return {name: state[f"{kind}/{name}"].tobytes() for name in names}


@functools.cache
def _on_one_device() -> dict[str, np.ndarray]:
    return trained(make(ONE))


@pytest.mark.parametrize("parallel", TOPOLOGIES, ids=label)
def test_trains_as_on_one_device(parallel):
    engine = make(parallel)
    found = trained(engine)
    # XLA's tanh is another approximation.
    driving.assert_near(found, _on_one_device(), 1e-9 if parallel.get("jit") else FLOAT64)
    assert_no_drift(engine)


@pytest.mark.parametrize("shards", [2, rare(3)])
def test_shards_train_as_one_device(shards, monkeypatch):
    monkeypatch.setattr(networks, "mlp", sharded.NAMES["mlp"], raising=False)
    train = {"freeze_after": {"up/": 0.5}, "learning_rate": 0.01}
    one, split = (
        make(ONE, "mlp", **train),
        make({"strategy": "grid", "shards": shards}, "mlp", **train),
    )
    before, expected = one.state(), trained(one)
    driving.assert_near(trained(split), expected, FLOAT64)
    changed = driving.differing(expected, before)
    assert {name.rpartition("/up")[1] for name in changed if name.startswith("model/")} == {
        "",
        "/up",
    }


@pytest.mark.parametrize("parallel", [ONE, MIRRORED, {**STAGES, "stages": 2}], ids=label)
@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_is_a_loop_of_keras_whose_flag_changes(parallel, clip):
    engine = make(parallel, optimizer="sgd", weight_decay=0, clip_norm=clip)
    with _in_float64():
        model = networks.plain((32, 32, 3), driving.CLASSES)
        for variable in model.variables:
            variable.assign(engine.weights()[variable.path])
        _train_with_keras(model, clip)
    trained(engine)
    driving.assert_near(
        engine.weights(), {each.path: each.numpy() for each in model.variables}, FLOAT64
    )


def _train_with_keras(model: keras.Model, clip: float) -> None:
    optimizer = keras.optimizers.SGD(0.05, 0.9, nesterov=True, global_clipnorm=clip or None)
    optimizer.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for step, batch in enumerate(driving.dataset()):
        if step == 2:
            model.get_layer("conv0").trainable = False
        if step == 3:
            model.get_layer("dense").bias.trainable = False
        with tf.GradientTape() as tape:
            value = loss(batch.targets, model(tf.cast(batch.inputs, tf.float64), training=True))
        trainable = model.trainable_variables
        optimizer.apply(tape.gradient(value, [each.value for each in trainable]), trainable)
    assert len(trainable) == 5


@contextlib.contextmanager
def _in_float64() -> Iterator[None]:
    before = keras.config.dtype_policy()
    with floatx("float64"):
        keras.config.set_dtype_policy("float64")
        try:
            yield
        finally:
            keras.config.set_dtype_policy(before)


@pytest.mark.parametrize(
    "parallel", [ONE, rare(MIRRORED), rare(GRID), rare({**GRID, "zero": 1})], ids=label
)
def test_the_weights_and_their_slots_stay_to_the_bit(parallel):
    engine = make(parallel, "norm", freeze_after={"conv0/|norm0/": 0.34}, ema_decay=0.5)
    states = [trained(engine, 1, start=step) for step in range(4)]
    changed = [driving.differing(b, a) for a, b in itertools.pairwise(states)]
    frozen = {f"conv0/{name}" for name in ("kernel", "bias")}
    frozen |= {f"norm0/{name}" for name in ("gamma", "beta")}
    slots = {
        f"optimizer/{name.replace('/', '_')}_{slot}"
        for name in frozen
        for slot in ("momentum", "velocity")
    }
    still = {f"model/{name}" for name in frozen} | slots
    assert still <= changed[0]
    for of_step in changed[1:]:
        assert not still & of_step
        # Moving statistics are no weights. EMA weights move on, towards the frozen ones.
        assert {"model/norm0/moving_mean", "model/norm0/moving_variance"} <= of_step
        assert {f"ema/{name}" for name in frozen} <= of_step
        assert {"model/conv1/kernel", "model/logits/bias", "step"} <= of_step
    last, before = states[-1], states[-2]
    for name in frozen:
        now, then = (np.abs(s[f"ema/{name}"] - s[f"model/{name}"]).max() for s in (last, before))
        assert now < then


@pytest.mark.parametrize("parallel", [ONE, rare(MIRRORED), rare(GRID)], ids=label)
def test_a_pull_sets_slow_weights_to_frozen_ones(parallel):
    engine = make(parallel, lookahead=3, freeze_after={"^conv0/": 0.34})
    frozen = trained(engine, 2)
    assert of(frozen, FIRST) != of(frozen, FIRST, "ema")
    pulled = trained(engine, 1, start=2)
    assert of(frozen, FIRST) == of(pulled, FIRST) == of(pulled, FIRST, "ema")
    assert of(trained(engine, 3, start=3), FIRST) == of(frozen, FIRST)


@pytest.mark.parametrize(
    ("first", "second"), [(ONE, ONE), rare(GRID, GRID), rare(MIRRORED, STAGES)], ids=label
)
@pytest.mark.parametrize("done", [1, rare(2), rare(3)])
def test_resumes_in_the_middle(first, second, done):
    begun, resumed = make(first, ema_decay=0.9), make(second, ema_decay=0.9)
    resumed.restore(trained(begun, done))
    found, expected = (trained(each, STEPS - done, start=done) for each in (resumed, begun))
    if first == second:
        driving.assert_same_bits(found, expected)
    driving.assert_near(found, expected, FLOAT64)
    assert of(found, FIRST) == of(expected, FIRST) or done < 2


@pytest.mark.parametrize("parallel", [ONE, rare(GRID)], ids=label)
def test_calls_of_any_length_are_the_same_training(parallel):
    whole, single = make(parallel), make(parallel)
    metrics = whole.train(driving.feed(whole), STEPS)
    batches = driving.feed(single)
    parts = [single.train(batches, 1) for _ in range(STEPS)]
    driving.assert_same_bits(whole.state(), single.state())
    assert metrics.examples == sum(part.examples for part in parts) == STEPS * BATCH
    assert metrics.loss == pytest.approx(np.mean([part.loss for part in parts]), abs=1e-14)


@pytest.mark.parametrize("parallel", [ONE, rare(GRID)], ids=label)
def test_a_skipped_step_is_no_step(parallel):
    engine = make({**parallel, "precision": "mixed_float16"}, freeze_after={"^conv0/": 0.34})
    batches = driving.feed(engine, spoilt={0: math.nan})
    engine.train(batches, 2)
    assert (engine.step, engine.batches) == (1, 2)
    states = [engine.state()]
    for _ in range(2):
        engine.train(batches, 1)
        states.append(engine.state())
    first, second, third = (of(state, FIRST) for state in states)
    assert first != second == third

    other = make({**parallel, "precision": "mixed_float16"}, freeze_after={"^conv0/": 0.34})
    other.train(driving.feed(other, spoilt={0: math.nan}), 4)
    driving.assert_same_bits(other.state(), states[-1])


@pytest.mark.parametrize(
    "parallel",
    [
        ONE,
        rare(MIRRORED),
        {**STAGES, "cuts": "tanh0,tanh1"},
        {**STAGES, "remat": True, "cuts": "tanh0,tanh1"},
    ],
    ids=label,
)
def test_there_is_no_backward_pass_before_the_first_trained_layer(parallel):
    engine = make(parallel, freeze_after={"^conv[01]/": 0.5})
    engine._placement_checked |= {0, 1}
    batches, filters = driving.feed(engine), []
    for steps in (3, 1):
        with placement_check.recording() as ops:
            engine.train(batches, steps)
        assert ops
        filters.append(sum(op.kind == "Conv2DBackpropFilter" for op in ops))
        stages = {
            found[1]
            for op in ops
            if placement_check.GRADIENT in op.name
            and (found := placement_check._STAGE_REPLICA.search(op.name))
        }
    assert filters[0] >= 2
    assert filters[1] == 0
    assert stages <= {"0"}


@pytest.mark.parametrize("parallel", [ONE, rare(MIRRORED), rare(STAGES)], ids=label)
def test_gradients_are_those_of_all_weights(parallel):
    always = make(parallel, freeze_after=None)
    for steps in (0, 4):  # traced before the first step, and after the last freeze
        engine = make(parallel)
        always.restore(trained(engine, steps) if steps else engine.state())
        (_, found), (_, expected) = map(driving.gradients, (engine, always))
        assert found.keys() >= FIRST
        driving.assert_near(found, expected, FLOAT64)


def test_a_share_of_few_steps_is_rounded():
    engine = make(ONE, freeze_after={"^conv0/": 0.05, "dense/bias": 0.95})
    before, first = engine.state(), trained(engine, 1)
    last = trained(engine, STEPS - 1, start=1)
    assert of(before, FIRST) != of(first, FIRST) == of(last, FIRST)  # one step is the least
    assert "model/dense/bias" in driving.differing(last, first)


def test_parts_of_an_optimizer():
    parts = '{"^conv0/": {"name": "adam"}, "": {"name": "adagrad"}}'
    train = {"optimizer": "parts", "optimizer_args": parts, "weight_decay": 0, "clip_norm": 0}
    found, expected = (trained(make(each, **train)) for each in (STAGES, ONE))
    driving.assert_near(found, expected, FLOAT64)
