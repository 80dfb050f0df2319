"""Muon on every topology, in float64: an engine has whole kernels, and knows the output layers."""

from typing import Any

import driving
import numpy as np
import pytest
from driving import GRID, MIRRORED, ONE, STAGES, label, rare

TRAIN: dict[str, Any] = {
    "optimizer": "muon",
    "optimizer_args": {"momentum": 0.6, "iterations": 3, "normalize_weights": True},
    "learning_rate_multipliers": {"logits": 12.0},
    "ema_decay": 0.9,
    "clip_norm": 0.5,
    "learning_rate": 0.01,
}

FLOAT64 = 1e-11
"""2 ** -53 times the slope of three iterations, 3.4445 ** 3, in six steps that follow each other,
on sums of some hundred products."""


def make(parallel: dict[str, Any]) -> Any:
    return driving.make({"precision": "float64", **parallel}, "drop", **TRAIN)


@pytest.fixture(scope="module")
def alone() -> tuple[driving.State, driving.State]:
    """The state of one device after three steps, and after six."""
    engine = make(ONE)
    engine.train(driving.feed(engine), 3)
    halfway = engine.state()
    engine.train(driving.feed(engine, start=3), 3)
    return halfway, engine.state()


@pytest.mark.parametrize(
    "parallel",
    [
        GRID,
        {**STAGES, "accumulate": 2},
        rare(MIRRORED),
        rare({"strategy": "central_storage", "replicas": 2}),
        rare({**GRID, "remat": True}),
        rare({**GRID, "jit": True}),
    ],
    ids=label,
)
def test_any_topology_goes_on_from_one_device(parallel, alone):
    halfway, expected = alone
    engine = make(parallel)
    engine.restore(halfway)
    driving.assert_same_bits(engine.state(), halfway)
    engine.train(driving.feed(engine, start=3), 3)
    driving.assert_near(engine.state(), expected, FLOAT64)
    driving.assert_no_drift(engine)


def test_hidden_kernels_keep_their_norm(alone):
    """And no others: the norm of a step's kernel is near that before the step."""
    _, end = alone
    for name, value in end.items():
        if name.startswith("model/conv") and name.endswith("/kernel"):
            share = np.linalg.norm(value) / np.sqrt(value.shape[-1])
            assert share == pytest.approx(1.0, abs=0.02), name
    head = end["model/logits/kernel"]
    assert abs(np.linalg.norm(head) / np.sqrt(head.shape[-1]) - 1) > 0.1


@pytest.mark.parametrize("precision", ["mixed_bfloat16", rare("mixed_float16")])
def test_mixed_precision_updates_float32_kernels(precision):
    engine = make({**GRID, "precision": precision})
    start = engine.state()
    engine.train(driving.feed(engine), 3)
    state = engine.state()
    kernels = [name for name in state if name.endswith("kernel") and name.startswith("model/")]
    assert kernels
    for name in kernels:
        assert state[name].dtype == np.float32
        assert np.isfinite(state[name]).all() and not np.array_equal(state[name], start[name])
