"""Slow weights, which pull the weights back every few steps, on each kind of topology."""

import functools
from typing import Any

import driving
import networks
import numpy as np
import pytest
import sharded
from driving import GRID, MIRRORED, ONE, STAGES, assert_no_drift, assert_same_bits, label, rare

from stagecraft.trainer_module.engines import placement_check

EVERY, TOTAL = 2, driving.STEPS
TRAIN: dict[str, Any] = {"lookahead": EVERY, "learning_rate": 0.05}
CENTRAL = {"strategy": "central_storage", "replicas": 2}
TOPOLOGIES: list[Any] = [
    MIRRORED,
    rare(CENTRAL),
    STAGES,
    GRID,
    {**GRID, "zero": 1},
    rare({**STAGES, "remat": True}),
    rare({**ONE, "accumulate": 2, "remat": True}),
    rare({**GRID, "accumulate": 2}),
]

FLOAT64 = 1e-13
"""The sums over parts have another order: some units of 2 ** -53 on values of about 1."""


def make(parallel: dict[str, Any], model: str = "plain", **train: Any) -> Any:
    return driving.make({**parallel, "precision": "float64"}, model, **{**TRAIN, **train})


def trained(engine: Any, steps: int = 5, start: int = 0) -> dict[str, np.ndarray]:
    engine.train(driving.feed(engine, start=start), steps)
    state: dict[str, np.ndarray] = engine.state()
    return state


@functools.cache
def _on_one_device(model: str) -> dict[str, np.ndarray]:
    return trained(make(ONE, model))


@pytest.mark.parametrize("parallel", TOPOLOGIES, ids=label)
def test_trains_as_on_one_device(parallel):
    expected = _on_one_device("plain")
    engine = make(parallel)
    driving.assert_near(trained(engine), expected, FLOAT64)
    assert_no_drift(engine)


@pytest.mark.parametrize("model", ["mlp", rare("cnn"), rare("head")])
def test_shards_train_as_one_device(model, monkeypatch):
    monkeypatch.setattr(networks, model, sharded.NAMES[model], raising=False)
    rate = {"learning_rate": 0.01}
    engine = make({"strategy": "grid", "shards": 2}, model, **rate)
    expected, found = trained(make(ONE, model, **rate)), trained(engine)
    driving.assert_near(found, expected, 1e-11)
    assert_no_drift(engine)


def _without_pulls(engine: Any, state: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    """The state one step later, by an engine without lookahead."""
    engine.restore({name: v for name, v in state.items() if not name.startswith("ema/")})
    return trained(engine, 1, start=step)


@pytest.mark.parametrize("parallel", [ONE, rare(GRID)], ids=label)
@pytest.mark.parametrize("model", ["norm", rare("plain")])
def test_is_the_rule_written_with_numpy(parallel, model):
    engine, steps = make(parallel, model), make(parallel, model, lookahead=0)
    state = engine.state()
    slow_ones = {name: v for name, v in state.items() if name.startswith("ema/")}
    moving = {name for name in slow_ones if "moving" in name}
    assert bool(moving) is (model == "norm")
    for done in range(1, TOTAL + 1):
        expected = _without_pulls(steps, state, done - 1)
        if done % EVERY == 0:
            decay = 0.95**EVERY * (done / TOTAL) ** 3
            for name in slow_ones:
                weight = name.replace("ema/", "model/")
                slow_ones[name] = decay * slow_ones[name] + (1 - decay) * expected[weight]
                expected[weight] = slow_ones[name]
        state = trained(engine, 1, start=done - 1)
        for name, value in {**expected, **slow_ones}.items():
            # Two products and a sum, in another order.
            np.testing.assert_allclose(state[name], value, rtol=1e-15, atol=1e-15, err_msg=name)
    assert state.keys() == {*expected, *slow_ones}


@pytest.mark.parametrize("parallel", [ONE, rare(MIRRORED), rare(GRID)], ids=label)
def test_evaluates_and_exports_the_last_pull(parallel):
    engine = make(parallel, "norm")
    pulled = trained(engine, 4)
    metrics = engine.evaluate(driving.dataset())
    between = trained(engine, 1, start=4)
    changed = driving.differing(between, pulled)
    assert not {name for name in changed if name.startswith("ema/")}
    assert {"model/dense/kernel", "model/norm0/moving_mean"} <= changed
    found = engine.evaluate(driving.dataset())
    assert (found.loss, found.values) == (metrics.loss, metrics.values)
    weights = engine.weights()
    for name, value in pulled.items():
        if name.startswith("ema/"):
            np.testing.assert_array_equal(weights[name.removeprefix("ema/")], value)


@pytest.mark.parametrize("parallel", [rare(ONE), MIRRORED, rare(STAGES), rare(GRID)], ids=label)
def test_goes_on_bit_by_bit(parallel):
    engine = driving.make(parallel, "drop", **TRAIN)
    halfway = trained(engine, 3)
    expected = trained(engine, 3, start=3)
    second = driving.make(parallel, "drop", **TRAIN)
    second.restore(halfway)
    assert_same_bits(trained(second, 3, start=3), expected)


@pytest.mark.parametrize("parallel", [ONE, rare(MIRRORED), STAGES], ids=label)
def test_slow_weights_meet_the_constraints(parallel):
    engine = make(parallel, "penalised", learning_rate=0.5)
    state = trained(engine, 4)
    for name in ("ema/conv0/kernel", "model/conv0/kernel"):
        norms = np.sqrt(np.square(state[name]).sum(axis=(0, 1, 2)))
        np.testing.assert_allclose(norms, 1, rtol=1e-6)  # Keras adds an epsilon of 1e-7


@pytest.mark.full
@pytest.mark.parametrize("parallel", [ONE, MIRRORED, GRID], ids=label)
def test_a_skipped_step_counts_for_no_pull(parallel):
    engine = driving.make({**parallel, "precision": "mixed_float16"}, **TRAIN)
    before = engine.state()
    spoilt = engine.feed(driving.dataset(3, spoilt={1: 1e6}))
    engine.train(spoilt, 2)
    state = engine.state()
    assert (int(state["step"]), engine.batches) == (1, 2)
    ema = {name for name in state if name.startswith("ema/")}
    assert not driving.differing(state, before) & ema
    engine.train(spoilt, 1)
    state = engine.state()
    assert state["step"] == EVERY
    assert "ema/dense/kernel" in driving.differing(state, before)
    driving.assert_same_bits(
        {name: state[name.replace("ema/", "model/")] for name in ema},
        {name: state[name] for name in ema},
    )


def test_frozen_weights_have_no_slow_weights():
    engine = make(STAGES, "frozen")
    slow_ones = {name for name in engine.state() if name.startswith("ema/")}
    assert not {name for name in slow_ones if "conv0" in name or "norm" in name}
    assert "ema/dense/kernel" in slow_ones


def test_ops_of_pulls_run_on_their_devices():
    engine = make(GRID, "norm", clip_norm=1.0)
    with placement_check.recording() as ops:
        engine._placement_checked.add(0)
        trained(engine, 2)
    engine._check_placement(ops)
    pulls = [op for op in ops if "/cond/" in op.name and op.kind == "AssignVariableOp"]
    assert {op.device for op in pulls} == {f"CPU:{index}" for index in range(4)}
