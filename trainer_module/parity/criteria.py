"""Judges whether two computations of one training are equal, within :mod:`.tolerances`.

Summation in another order rounds differently, and training amplifies rounding, so trajectories in
float32 prove nothing. Three criteria do:

**Gradients from equal weights** differ by no more than rounding. Batch statistics
depend on the part of a batch, so the reference of such a model takes each batch in the same parts.
That would hide a penalty (``add_loss``, ``activity_regularizer``) that is combined wrongly over the
parts. So parity also compares the gradients of one more batch, which repeats the same examples. The
whole batch then has the statistics of each of its equal parts, and the reference takes it whole.

**A trajectory in float64.** A small learning rate leaves the amplified rounding far below
:data:`~.tolerances.TRAJECTORY_TOLERANCE`, and any mistake in optimizer, schedule, clipping or state
far above it. All layers compute in float64, even those with another float dtype
(:func:`.worker.forced_precision`).

**No drift**: all replicas hold the same bits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from stagecraft.trainer_module.parity import tolerances

GRADIENTS, TRAJECTORY, DRIFT = "gradients", "float64 trajectory", "drift"

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The variable with the largest difference, by one criterion."""

    criterion: str
    """:data:`GRADIENTS`, :data:`TRAJECTORY` or :data:`DRIFT`."""
    variable: str
    difference: float
    tolerance: float
    where: str = ""
    """Place in the trajectory, such as ``after 5 steps``."""

    @property
    def ratio(self) -> float:
        """Difference over tolerance; at most 1 is equal; infinite for NaN and infinity."""
        if not math.isfinite(self.difference) or not math.isfinite(self.tolerance):
            return math.inf
        if self.difference == 0:
            return 0.0
        return self.difference / self.tolerance if self.tolerance else math.inf

    @property
    def equal(self) -> bool:
        """Whether the difference is rounding."""
        return self.ratio <= 1

    def __str__(self) -> str:
        if self.criterion == DRIFT:
            return f"{self.variable} differs from replica 0, but the bits must be equal"
        where = f" {self.where}" if self.where else ""
        return (
            f"{self.criterion}{where}, {self.variable}: difference {self.difference:.3g}, "
            f"tolerance {self.tolerance:.3g}"
        )


def gradients(
    actual: Arrays,
    expected: Arrays,
    *,
    precision: str,
    depths: Mapping[str, float],
    magnitudes: Mapping[str, float],
    roundings: Mapping[str, float],
    nonsmooth_ops: int = 0,
    where: str = "",
) -> Finding:
    """Compares gradients with those of the reference for the same weights and batch.

    Both are by variable path.
    """
    findings = [_names(GRADIENTS, actual, expected, where)]
    for name in actual.keys() & expected.keys():
        difference = _norm(_minus(actual[name], expected[name]))
        bound = max(
            tolerances.tolerance(precision, depths[name], magnitudes[name], nonsmooth_ops),
            tolerances.measured_tolerance(precision, depths[name], magnitudes, roundings[name]),
        )
        findings.append(Finding(GRADIENTS, name, difference, bound, where))
    return worst(findings)


def trajectory(
    actual: Arrays, expected: Arrays, amplified: Mapping[str, float], where: str = ""
) -> Finding:
    """Compares the final weights of a float64 trajectory with the reference's."""
    findings = [_names(TRAJECTORY, actual, expected, where)]
    for name in actual.keys() & expected.keys():
        difference = distance(actual[name], expected[name])
        bound = max(tolerances.TRAJECTORY_TOLERANCE, tolerances.DEVIATIONS * amplified[name])
        findings.append(Finding(TRAJECTORY, name, difference, bound, where))
    return worst(findings)


def drift(replicas: Sequence[Mapping[str, str]]) -> Finding:
    """Compares all replicas, by digests, with the first; counts the unequal variables."""
    first, *others = replicas
    unequal = [
        f"{name} of replica {number}"
        for number, other in enumerate(others, start=1)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]
    return Finding(DRIFT, unequal[0] if unequal else "all", len(unequal), 0.0)


def worst(findings: Sequence[Finding]) -> Finding:
    """The finding with the largest ratio."""
    return max(findings, key=lambda finding: finding.ratio)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The largest absolute difference, in float64; 0 of no values.

    Infinite if a value is not finite, or the shapes differ.
    """
    difference = _minus(one, other)
    if not np.isfinite(difference).all():
        return math.inf
    return float(np.abs(difference).max(initial=0.0))


def largest_difference(actual: Arrays, expected: Arrays) -> float:
    """The largest absolute difference over all common variables."""
    return max(
        (distance(actual[name], expected[name]) for name in actual.keys() & expected.keys()),
        default=math.inf,
    )


def _names(criterion: str, actual: Arrays, expected: Arrays, where: str) -> Finding:
    """A finding that is infinite if one side lacks a variable of the other."""
    differ = sorted(actual.keys() ^ expected.keys())
    if not differ and expected:
        return Finding(criterion, "all", 0.0, 0.0, where)
    name = "no variable"
    if differ:
        where_only = "in the topology" if differ[0] in actual else "on one device"
        name = f"{differ[0]} (only {where_only})"
    return Finding(criterion, name, math.inf, 0.0, where)


def _minus(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    if one.shape != other.shape:
        return np.full(1, np.inf)
    with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN
        return np.asarray(one, np.float64) - np.asarray(other, np.float64)


def _norm(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).sum())) if np.isfinite(values).all() else math.inf
