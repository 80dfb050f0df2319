"""The network of the fast recipe, with its settings, on each kind of topology."""

import functools
from typing import Any

import driving
import numpy as np
import pytest
from driving import GRID, MIRRORED, ONE, STAGES

from stagecraft.trainer_module.engines.engine import Engine

NAME = "airbench_4_6_8"
ACCUMULATE: dict[str, Any] = {**ONE, "accumulate": 2}
ACCUMULATE_4: dict[str, Any] = {**ONE, "accumulate": 4}
REPLICAS: dict[str, Any] = {"strategy": "grid", "replicas": 2, "stages": 1}
PAIRS = [(MIRRORED, ACCUMULATE), (REPLICAS, ACCUMULATE), (STAGES, ACCUMULATE), (GRID, ACCUMULATE_4)]
"""Topologies, each with one device that normalises the same parts of a batch."""

RECIPE: dict[str, Any] = {
    "optimizer": "muon",
    "optimizer_args": {"momentum": 0.6, "iterations": 3, "normalize_weights": True},
    "learning_rate": 0.05,
    "schedule": "triangular",
    "momentum": 0.85,
    "label_smoothing": 0.2,
    "learning_rate_multipliers": {"norm/beta": 64},
    "ema_decay": 0.9,
}
LOOKAHEAD: dict[str, Any] = {**RECIPE, "ema_decay": 0, "lookahead": 2}
"""With a pull after each second step, as in the paper after each fifth."""

ROUNDING = {"float64": 2.0**-53 * np.sqrt(8 * 31 * 31), "mixed_bfloat16": 3 * 2.0**-24}
"""A step sums 8 x 31 x 31 products of float64 in another order. In mixed_bfloat16, each part rounds
alike, and the sum of four parts in float32 has another order; in these steps, no weight crosses a
boundary between two values of bfloat16."""


def _images() -> np.ndarray:
    images: np.ndarray = driving.examples(40).inputs
    return images


def _engine(
    parallel: dict[str, Any],
    precision: str = "float64",
    train: dict[str, Any] = RECIPE,
) -> Engine:
    parallel = {**parallel, "precision": precision}
    return driving.make(parallel, NAME, adapt_to=_images, **train)


@functools.cache
def _trained(accumulate: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """State before and after four steps, on one device in so many parts."""
    engine = _engine({**ONE, "accumulate": accumulate})
    before = engine.state()
    engine.train(driving.feed(engine), 4)
    return before, engine.state()


@functools.cache
def _trained_with_lookahead(precision: str, accumulate: int) -> dict[str, np.ndarray]:
    engine = _engine({**ONE, "accumulate": accumulate}, precision, LOOKAHEAD)
    engine.train(driving.feed(engine), 4)
    return engine.state()


@pytest.mark.full  # as the parity of real topologies
@pytest.mark.parametrize(("parallel", "reference"), PAIRS, ids=driving.label)
def test_trains_as_on_one_device(parallel, reference):
    engine = _engine(parallel)
    before, after = _trained(reference["accumulate"])
    driving.assert_same_bits(engine.state(), before)
    engine.train(driving.feed(engine), 4)
    _assert_alike(engine, after, "float64")


@pytest.mark.parametrize("precision", [driving.rare("float64"), "mixed_bfloat16"])
@pytest.mark.parametrize(
    ("parallel", "reference"),
    [driving.rare(*pair) for pair in PAIRS if pair[0] is not GRID] + [(GRID, ACCUMULATE_4)],
    ids=driving.label,
)
def test_trains_with_lookahead_as_on_one_device(parallel, reference, precision):
    engine = _engine(parallel, precision, LOOKAHEAD)
    engine.train(driving.feed(engine), 4)
    expected = _trained_with_lookahead(precision, reference["accumulate"])
    assert "ema/logits/kernel" in expected
    _assert_alike(engine, expected, precision)


@pytest.mark.parametrize("precision", [driving.rare("float64"), "mixed_bfloat16"])
@pytest.mark.parametrize(
    "parallel", [driving.rare(MIRRORED), STAGES, driving.rare(GRID)], ids=driving.label
)
def test_goes_on_bit_by_bit(parallel, precision):
    engine = _engine(parallel, precision, LOOKAHEAD)
    engine.train(driving.feed(engine), 3)  # between two pulls
    halfway = engine.state()
    engine.train(driving.feed(engine, start=3), 3)
    second = _engine(parallel, precision, LOOKAHEAD)
    second.restore(halfway)
    second.train(driving.feed(second, start=3), 3)
    driving.assert_same_bits(second.state(), engine.state())


def _assert_alike(engine: Engine, after: dict[str, np.ndarray], precision: str) -> None:
    found = engine.state()
    assert found.keys() == after.keys()
    # Four steps multiply relative errors of all weights by 2.2 (measured with errors of 1e-10).
    bound = 4 * 2.2 * ROUNDING[precision]
    for name, value in after.items():
        scale = max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(found[name], value, rtol=0, atol=bound * scale, err_msg=name)
    for state in engine.replica_states():
        driving.assert_same_bits(state, {name: found[name] for name in state})


def test_only_the_kernel_of_the_whitening_stays():
    before, after = _trained(2)
    kernel = "model/whitening/kernel"
    assert np.abs(before[kernel]).max() != pytest.approx(1, abs=1e-3)  # that of a new layer
    assert kernel not in driving.differing(before, after)
    weights = {name for name in before if name.startswith("model/")} - {kernel}
    assert weights <= driving.differing(before, after)


def test_biases_of_normalisations_move_64_times_as_far():
    slow = driving.make(
        {**ACCUMULATE, "precision": "float64"},
        NAME,
        adapt_to=_images,
        **{**RECIPE, "learning_rate_multipliers": None},
    )
    slow.train(driving.feed(slow), 1)
    fast = _engine(ACCUMULATE)
    fast.train(driving.feed(fast), 1)
    one, two = slow.state(), fast.state()
    for name in one:
        if name.startswith("model/") and name.endswith("norm/beta"):
            np.testing.assert_allclose(two[name], 64 * one[name], rtol=1e-12)
    np.testing.assert_array_equal(two["model/logits/kernel"], one["model/logits/kernel"])
