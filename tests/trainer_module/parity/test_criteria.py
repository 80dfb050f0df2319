import math
from collections.abc import Callable

import numpy as np
import pytest

from stagecraft.trainer_module.parity import criteria, tolerances
from stagecraft.trainer_module.parity.criteria import Finding

EXAMPLES, PARTS = 4096, 8
Sums = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _example_gradients(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Inputs ``[n, 16]`` and errors ``[n, 4]``: a kernel's gradient is the sum of their products.

    With a mean, as gradients early in a training have one.
    """
    draw = np.random.RandomState(1)
    inputs = draw.randn(EXAMPLES, 16) + 0.1
    return inputs.astype(dtype), (draw.randn(EXAMPLES, 4) + 0.1).astype(dtype)


def _one_by_one(inputs: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """As no kernel does, but as Higham's bound has it: one term after the other."""
    total = np.zeros((16, 4), inputs.dtype)
    for row, error in zip(inputs, errors, strict=True):
        total += np.outer(row, error)
    return total


def _parts(inputs: np.ndarray, errors: np.ndarray, sums: Sums) -> list[np.ndarray]:
    pairs = zip(np.split(inputs, PARTS), np.split(errors, PARTS), strict=True)
    return [sums(one, other) for one, other in pairs]


def _judge(found: np.ndarray, expected: np.ndarray, precision: str, length: float) -> Finding:
    inputs, errors = _example_gradients(np.float64)
    signs = np.random.RandomState(0).choice([-1.0, 1.0], (3, EXAMPLES, 1))
    probes = [inputs.T @ errors, *(inputs.T @ (errors * sign) for sign in signs)]
    return criteria.gradients(
        {"kernel": found},
        {"kernel": expected},
        precision=precision,
        depths={"kernel": length},
        magnitudes={"kernel": max(float(np.linalg.norm(probe)) for probe in probes)},
        roundings={"kernel": 0.0},
    )


@pytest.mark.parametrize(("dtype", "precision"), [(np.float32, "float32"), (np.float64, "float64")])
def test_another_order_of_summation_is_rounding(dtype, precision):
    inputs, errors = _example_gradients(dtype)
    whole = _one_by_one(inputs, errors)
    halves = sum(_parts(inputs, errors, _one_by_one))
    finding = _judge(halves, whole, precision, EXAMPLES)
    assert 0 < finding.ratio < 1
    # The bound is of the size of what it bounds, not a number that everything is below.
    assert finding.ratio > 1e-3


def _bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounded to 8 bits of significand."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 256) / 256, exponent)


def test_parts_rounded_to_16_bits_are_rounding():
    inputs, errors = _example_gradients(np.float64)
    whole = _bfloat16(inputs.T @ errors)
    parts = sum(_bfloat16(part) for part in _parts(inputs, errors, lambda x, y: x.T @ y))
    finding = _judge(parts, whole, "mixed_bfloat16", 3)
    assert 0 < finding.ratio < 1


FAULTS: list[Callable[[list[np.ndarray]], np.ndarray]] = [
    lambda parts: sum(parts[1:]),  # one is dropped
    lambda parts: sum(parts) + parts[0],  # one is taken twice
    lambda parts: sum(parts) / len(parts),
    lambda parts: 2 * sum(parts),
    lambda parts: len(parts) * parts[0],  # the same rows in all
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("precision", "length", "far"),
    # A part of 8 is at least 1/8 of M. In float32 the tolerance is
    # 4 sqrt(2/3) 2**-24 sqrt(4096) M = 1.2e-5 M; a real network's n is larger, 4e4 or so.
    # In bfloat16 with 20 roundings it is 0.057 M.
    [("float32", EXAMPLES, 1000), ("float32", 40_000, 1000), ("mixed_bfloat16", 20, 2)],
)
def test_a_fault_is_far_outside(fault, precision, length, far):
    inputs, errors = _example_gradients(np.float64)
    parts = _parts(inputs, errors, lambda x, y: x.T @ y)
    assert _judge(fault(parts), sum(parts), precision, length).ratio > far


def test_units_on_the_other_side_of_their_kink_are_rounding():
    """Of ReLUs whose inputs differ by rounding, the gradient of the weights before them."""
    error = math.sqrt(2 / 3) * 2.0**-24 * math.sqrt(40_000) / 16  # in blocks of 256
    differences = []
    for seed in range(6):  # about one unit of five million changes sides
        draw = np.random.default_rng(seed)
        values, shares, moves = draw.standard_normal((3, 5_000_000))
        changed = (values > 0) != (values + error * moves > 0)
        differences.append(abs(float((np.sign(values) * shares)[changed].sum())))
    magnitude = math.sqrt(float(np.square(shares[values > 0]).sum()))
    assert max(differences) < tolerances.tolerance("float32", 40_000, magnitude, nonsmooth_ops=1)
    # What is smooth would not explain it.
    assert max(differences) > tolerances.tolerance("float32", 40_000, magnitude)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_far_outside_what_kinks_explain(fault):
    inputs, errors = _example_gradients(np.float64)
    parts = _parts(inputs, errors, lambda x, y: x.T @ y)
    faulty = _judge(fault(parts), sum(parts), "float32", 40_000)
    magnitude = faulty.tolerance / tolerances.tolerance("float32", 40_000, 1.0)
    # Seven layers with kinks, as the CNN has: 0.7 % of M, and the least fault is 1/8 of it.
    assert faulty.difference > 10 * tolerances.tolerance(
        "float32", 40_000, magnitude, nonsmooth_ops=7
    )


def test_labels_of_other_rows_are_far_outside():
    inputs, errors = _example_gradients(np.float64)
    shifted = inputs.T @ np.roll(errors, EXAMPLES // PARTS, axis=0)
    assert _judge(shifted, inputs.T @ errors, "float32", EXAMPLES).ratio > 1000


def _key_bias(queries: np.ndarray, keys: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The gradient of a bias of all keys, which is 0: softmax takes no notice of it.

    Args:
        queries: ``[batch, tokens, width]``.
        keys: the same shape.
        errors: of the weights, ``[batch, tokens, tokens]``.
    """
    scores = queries @ keys.transpose(0, 2, 1)
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    weights = exponents / exponents.sum(-1, keepdims=True)
    of_scores = weights * (errors - (weights * errors).sum(-1, keepdims=True))
    return np.einsum("bqk,bqw->w", of_scores, queries)


def _key_biases(fault: float = 0.0) -> tuple[Finding, Finding]:
    """By what is summed alone, and by measured rounding too.

    In the topology, all that comes in has been rounded otherwise.
    """
    draw = np.random.RandomState(2)
    queries, keys, errors = (draw.randn(64, 16, width).astype(np.float32) for width in (8, 8, 16))
    signs = draw.choice(np.array([-1, 1], np.float32), (3, 64, 1, 1))
    off, other = (
        [tolerances.rounded(values, 2.0**-24, draw) for values in (queries, keys)] for _ in range(2)
    )
    probes = [errors, *(errors * sign for sign in signs)]
    plain = [_key_bias(queries, keys, probe) for probe in probes]
    moved = [_key_bias(*off, probe) for probe in probes]
    halves = sum(_key_bias(*(v[half] for v in (*other, errors))) for half in HALVES)
    found = {"bias": halves + np.float32(fault), "kernel": np.ones(1)}
    common = {
        "precision": "float32",
        "depths": {"bias": 1000.0, "kernel": 1000.0},
        "magnitudes": {"bias": max(map(float, map(np.linalg.norm, plain))), "kernel": 1.0},
    }
    changes = [float(np.linalg.norm(one - two)) for one, two in zip(plain, moved, strict=True)]
    findings = [
        criteria.gradients(
            found,
            {"bias": plain[0], "kernel": np.ones(1)},
            roundings={"bias": rounding, "kernel": 0.0},
            **common,
        )
        for rounding in (0.0, max(changes))
    ]
    return findings[0], findings[1]


HALVES = (slice(0, 32), slice(32, 64))


def test_a_gradient_of_zero_is_rounding():
    by_sums, by_measure = _key_biases()
    assert by_sums.variable == by_measure.variable == "bias"
    assert by_sums.ratio > 100
    assert 0.01 < by_measure.ratio < 1


def test_what_is_added_to_a_gradient_of_zero_is_found():
    _, by_measure = _key_biases(fault=1e-3)
    assert by_measure.ratio > 5


def _huge_rounding(magnitude: float) -> Finding:
    return criteria.gradients(
        {"a": np.array([0.1]), "b": np.array([1.0])},
        {"a": np.array([0.0]), "b": np.array([1.0])},
        precision="float32",
        depths={"a": 100.0, "b": 100.0},
        magnitudes={"a": 0.1, "b": magnitude},
        roundings={"a": 1e3, "b": 0.0},
    )


def test_no_measurement_excuses_what_is_no_rounding():
    """A layer that draws anew each time changes as much as its gradient is."""
    finding = _huge_rounding(magnitude=3.0)
    # Rounding of the whole gradient, whose norm is hypot(0.1, 3).
    assert finding.tolerance == pytest.approx(
        tolerances.tolerance("float32", 100.0, math.hypot(0.1, 3.0))
    )
    assert finding.ratio > 1000


def _two(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> Finding:
    return criteria.gradients(
        found,
        expected,
        precision="float32",
        depths=dict.fromkeys(expected, 100.0),
        magnitudes=dict.fromkeys(expected, 1.0),
        roundings=dict.fromkeys(expected, 0.0),
        where="after 5 steps",
    )


def test_the_finding_names_the_worst_variable():
    expected = {"a": np.zeros(2), "b": np.zeros(2), "c": np.zeros(2)}
    finding = _two(expected | {"a": np.full(2, 1e-7), "b": np.array([0.0, 0.25])}, expected)
    assert not finding.equal and finding.variable == "b"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_not_equal(value):
    bad, good = {"a": np.array([value])}, {"a": np.array([1.0])}
    assert not _two(bad, good).equal
    assert not _two(good, bad).equal
    assert not _two(bad, bad).equal
    assert not criteria.trajectory(bad, good, {"a": 0.0}).equal
    assert criteria.largest_difference(bad, good) == math.inf


def test_missing_variables_are_not_equal():
    one, two = {"a": np.zeros(1)}, {"a": np.zeros(1), "b": np.zeros(1)}
    assert not _two(one, two).equal
    assert not criteria.trajectory(two, one, {"a": 0.0}).equal
    assert not criteria.trajectory({}, {}, {}).equal
    assert not _two({"a": np.zeros(2)}, {"a": np.zeros(1)}).equal


def test_the_same_bits_are_equal_even_of_zeros():
    common = {name: {"a": 0.0} for name in ("depths", "magnitudes", "roundings")}
    finding = criteria.gradients(
        {"a": np.zeros(3)}, {"a": np.zeros(3)}, precision="float32", **common
    )
    assert finding.equal
    assert finding.ratio == 0


@pytest.mark.parametrize(
    ("difference", "amplified", "equal"),
    [
        (0.9e-10, 0.0, True),
        (1.1e-10, 0.0, False),
        (3.9e-9, 1e-9, True),
        (4.1e-9, 1e-9, False),
        (1e-9, math.nan, False),
        (1e-9, math.inf, False),
    ],
)
def test_a_trajectory_is_equal_up_to_1e_10_or_amplified_rounding(difference, amplified, equal):
    weights = {"a": np.array([0.0, 1.0])}
    moved = {"a": weights["a"] + difference}
    assert criteria.trajectory(moved, weights, {"a": amplified}).equal is equal


def test_replicas_are_equal_bit_for_bit():
    replica = {"model/a": "0f", "model/b": "1e"}
    assert criteria.drift([replica, dict(replica), dict(replica)]).equal
    finding = criteria.drift([replica, replica, replica | {"model/b": "ff"}])
    assert not finding.equal
    assert finding.variable == "model/b of replica 2"
    assert finding.difference == 1
