"""When two computations of one training are equal: what rounding allows, and no more.

Adding up in another order rounds differently, and training amplifies what is rounded, so
trajectories in float32 tell nothing. Three things do:

**Gradients from equal weights.** Let u be the unit roundoff, and let a number be a sum of n
terms. Each of the n additions is off by a relative error of at most u (Higham 2002, "Accuracy
and Stability of Numerical Algorithms", section 2.2, and 4.2 for sums: the worst case is n u).
Taken as independent and of mean zero, such errors grow with sqrt(n) u and not with n u (Higham
and Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis", theorem 2.4); taken as
uniform in [-u, u], each has the standard deviation u / sqrt(3). A gradient is a chain of sums:
over the fan-in of each layer on the way forward and on the way back, over batch and positions
where statistics are taken, and over batch and positions for the weight itself. The variances add
up, so n is the sum of these lengths. Two computations differ by sqrt(2) times as much as one
errs, relatively by

    e = sqrt(2 / 3) * u * sqrt(n).

That holds where the function is smooth. ReLU and max pooling have kinks: a unit that rounding
moves from one side of its kink to the other adds its whole share to the gradient, or takes it
away. Of a value z of N(0, 1) and a difference d of N(0, e^2), z and z + d differ in sign with the
probability arctan(e) / pi, about e / pi. Half of a layer's units are on the side that counts, so
those that change sides are sqrt(2 e / pi) of the norm of a random-sign sum over it, and K such
layers add up to sqrt(2 K e / pi). Of a variable with gradient g, in the norm over all of its
entries, this gives

    tolerance = (4 e + sqrt(2 K e / pi)) * M,

4 standard deviations of what is smooth, and one of the kinks: e is too large for them, because
kernels add up in blocks, 1 / 16 of it in blocks of 256, and sqrt(1 / 16) makes 4 of the one. M is
the size of what is summed. It is not ``|g|``, which
cancellation can make small: terms t_i with random signs s_i have E|sum s_i t_i|^2 =
sum |t_i|^2, so M is the largest norm among g and gradients of the same examples with random
signs on their losses.

In 16 bits, results are rounded to 16 bits once per layer and direction, and sums are carried in
float32: n counts layers instead of terms. The reference takes each batch in the same parts, so
that what meets a kink has been rounded alike: K counts as 0.

M sees what cancels between examples, and not what cancels within each of them. The bias of a
convolution before a normalization, or of the keys of an attention, has the gradient 0, as a sum of
terms that are not 0: g and M are the rounding of these terms, and nothing else. So rounding is also
measured, as Monte Carlo arithmetic does (Parker 1997, "Monte Carlo Arithmetic: exploiting
randomness in floating-point arithmetic"): the reference computes the same gradients again from
weights that are each off by a random relative error of at most u. The largest norm of a change, R,
is what two computations differ by, and 4 R is allowed where it is more than the above. It is never
more than rounding of a gradient as large as the whole model's,

    tolerance = max((4 e + sqrt(2 K e / pi)) * M, min(4 R, 4 e * sqrt(sum of M^2))),

the sum being over all variables: no measurement excuses what is no rounding. Where nothing
cancels, 4 R is below the first bound, as that is derived for sums in the worst order.

A model with batch statistics has those of a part, and so its reference takes each batch in the same
parts. That would hide a penalty (``add_loss``, ``activity_regularizer``) that is combined wrongly
over the parts. So the gradients of one batch more are compared, whose parts are equal: the same
examples, as often as there are parts. The whole batch then has the statistics of each of its parts,
and the reference takes it whole.

What is not rounding is of the order of M / sqrt(parts) or more: a part that is dropped, counted
twice, or made of other rows, and a mean in place of a sum.

**A trajectory in float64**, where a small learning rate leaves the amplified rounding far below
:data:`TRAJECTORY_TOLERANCE` and any other mistake, in optimizer, schedule, clipping or state,
far above it. All layers compute in float64, those too whose own dtype is another float
(:mod:`.float64`). Amplification is measured, too: the reference trains again from weights that are
each off by the rounding of a sum, which kernels take in blocks, e / 16. 4 times what the weights
differ by at the end is allowed where that is more than the tolerance. The rounding is that of
float64, or that of float32 for a model whose code casts to float32 by itself.

**No drift**: all replicas hold the same bits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

ROUNDOFF = {
    "float32": 2.0**-24,
    "float64": 2.0**-53,
    "mixed_bfloat16": 2.0**-8,
    "mixed_float16": 2.0**-11,
}
"""Unit roundoff of ``parallel.precision``: half the distance from 1 to the next number."""

DEVIATIONS = 4.0
"""Standard deviations of rounding that are still taken for rounding."""

TRAJECTORY_TOLERANCE = 1e-10
"""Largest absolute difference of a float64 weight at the end of the trajectory."""

GRADIENTS, TRAJECTORY, DRIFT = "gradients", "float64 trajectory", "drift"

Arrays = Mapping[str, np.ndarray]
"""By name."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """The variable in which two computations differ most, by one criterion."""

    criterion: str
    """:data:`GRADIENTS`, :data:`TRAJECTORY` or :data:`DRIFT`."""

    variable: str
    difference: float
    tolerance: float
    where: str = ""
    """Such as ``after 5 steps``."""

    @property
    def ratio(self) -> float:
        """Difference over tolerance: up to 1 is equal; infinite where a number is none."""
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
        where = f" {self.where}" if self.where else ""
        return (
            f"{self.criterion}{where}, {self.variable}: difference {self.difference:.3g}, "
            f"tolerance {self.tolerance:.3g}"
        )


def tolerance(precision: str, length: float, magnitude: float, kinks: int = 0) -> float:
    """Largest norm of a gradient's difference that rounding explains.

    Args:
        precision: ``parallel.precision``.
        length: n, the additions (in 16 bits: roundings) that the gradient has gone through.
        magnitude: M, the norm of what is summed.
        kinks: K, the layers that have kinks.
    """
    error = math.sqrt(2 / 3) * ROUNDOFF[precision] * math.sqrt(length)
    return (DEVIATIONS * error + math.sqrt(2 * kinks * error / math.pi)) * magnitude


def measured_tolerance(
    precision: str, length: float, magnitudes: Mapping[str, float], rounding: float
) -> float:
    """Largest norm of a gradient's difference that measured rounding explains.

    Args:
        precision: ``parallel.precision``.
        length: n, as :func:`tolerance` takes it.
        magnitudes: M of every variable of the model.
        rounding: R, the largest change of the gradient with weights that are off by a rounding.
    """
    of_all = tolerance(precision, length, math.hypot(*magnitudes.values()))
    return min(DEVIATIONS * rounding, of_all)


def gradients(
    found: Arrays,
    expected: Arrays,
    *,
    precision: str,
    lengths: Mapping[str, float],
    magnitudes: Mapping[str, float],
    roundings: Mapping[str, float],
    kinks: int = 0,
    where: str = "",
) -> Finding:
    """Holds gradients, by variable path, against the reference's.

    Args:
        found: the topology's.
        expected: the reference's, from equal weights and of the same batch.
        precision: ``parallel.precision``.
        lengths: n of each variable.
        magnitudes: M of each variable.
        roundings: R of each variable.
        kinks: K of the model.
        where: for the finding.

    Returns:
        The worst variable: the one with the largest ratio of difference and tolerance.
    """
    findings = [_names(GRADIENTS, found, expected, where)]
    for name in found.keys() & expected.keys():
        difference = _norm(_minus(found[name], expected[name]))
        bound = max(
            tolerance(precision, lengths[name], magnitudes[name], kinks),
            measured_tolerance(precision, lengths[name], magnitudes, roundings[name]),
        )
        findings.append(Finding(GRADIENTS, name, difference, bound, where))
    return worst(findings)


def trajectory(
    found: Arrays, expected: Arrays, amplified: Mapping[str, float], where: str = ""
) -> Finding:
    """Holds weights at the end of a trajectory in float64 against the reference's.

    Args:
        found: the topology's, by name.
        expected: the reference's.
        amplified: by name, the largest difference between the reference's and those that it comes
            to from weights that are off by a rounding.
        where: for the finding.
    """
    findings = [_names(TRAJECTORY, found, expected, where)]
    for name in found.keys() & expected.keys():
        difference = largest(_minus(found[name], expected[name]))
        bound = max(TRAJECTORY_TOLERANCE, DEVIATIONS * amplified[name])
        findings.append(Finding(TRAJECTORY, name, difference, bound, where))
    return worst(findings)


def rounding_of_sums(precision: str, length: float) -> float:
    """Relative error of a sum of ``length`` terms, in blocks of 256; at least the unit roundoff."""
    return ROUNDOFF[precision] * max(1.0, math.sqrt(2 / 3 * length) / 16)


def rounded(values: np.ndarray, error: float, draw: np.random.RandomState) -> np.ndarray:
    """``values``, each off by a random relative error of at most ``error``, in their dtype."""
    errors = draw.uniform(-error, error, values.shape)
    return np.asarray(values * (1 + errors), values.dtype)


def drift(replicas: Sequence[Mapping[str, str]]) -> Finding:
    """Holds the replicas against the first of them.

    Args:
        replicas: of each replica in each process, the digest of each variable's bytes.

    Returns:
        A finding whose difference is the number of variables that are not equal.
    """
    first, *others = replicas
    unequal = [
        f"{name} (replica {number})"
        for number, other in enumerate(others, start=1)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]
    return Finding(DRIFT, unequal[0] if unequal else "all", len(unequal), 0.0)


def worst(findings: Sequence[Finding]) -> Finding:
    """The one with the largest ratio."""
    return max(findings, key=lambda finding: finding.ratio)


def largest(values: np.ndarray) -> float:
    """The largest absolute value; infinite where one of them is no number; 0 of none."""
    if not np.isfinite(values).all():
        return math.inf
    return float(np.abs(values).max(initial=0.0))


def largest_difference(found: Arrays, expected: Arrays) -> float:
    """Over all variables of both."""
    return max(
        (largest(_minus(found[name], expected[name])) for name in found.keys() & expected.keys()),
        default=math.inf,
    )


def _names(criterion: str, found: Arrays, expected: Arrays, where: str) -> Finding:
    """A finding that is infinite where one of them has variables that the other lacks."""
    differ = sorted(found.keys() ^ expected.keys())
    if not differ and expected:
        return Finding(criterion, "all", 0.0, 0.0, where)
    name = f"{differ[0]} (in one of them only)" if differ else "no variable"
    return Finding(criterion, name, math.inf, 0.0, where)


def _minus(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    if one.shape != other.shape:
        return np.full(1, np.inf)
    with np.errstate(invalid="ignore"):  # infinite minus infinite is no number, which is told
        return np.asarray(one, np.float64) - np.asarray(other, np.float64)


def _norm(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).sum())) if np.isfinite(values).all() else math.inf
