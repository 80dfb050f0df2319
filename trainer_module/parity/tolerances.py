"""Tolerances of a parity check: what rounding allows, and no more.

**Gradients from equal weights.** Let u be the unit roundoff, and let a number be a sum of n terms.
Each of the n additions has a relative error of at most u (Higham 2002, "Accuracy and Stability of
Numerical Algorithms", section 2.2, and 4.2 for sums: the worst case is n u). If the errors are
independent and of mean zero, they grow with sqrt(n) u rather than n u (Higham and Mary 2019, "A
New Approach to Probabilistic Rounding Error Analysis", theorem 2.4). If they are uniform in
[-u, u], each has the standard deviation u / sqrt(3). A gradient is a chain of sums: over the fan-in
of each layer, forward and backward; over batch and positions for statistics; and over batch and
positions for the weight itself. The variances add up, so n, the rounding depth, is the sum of the
numbers of terms. The difference of two computations is sqrt(2) times the error of one, relatively

    e = sqrt(2 / 3) * u * sqrt(n).

This holds for smooth functions. ReLU and max pooling are not smooth: if rounding moves a unit
across the discontinuity of its derivative, the gradient gains or loses the unit's whole share. For
a value z of N(0, 1) and a difference d of N(0, e^2), z and z + d differ in sign with the
probability arctan(e) / pi, about e / pi. Half of a layer's units are active, so those that change
sides are sqrt(2 e / pi) of the norm of a random-sign sum over it, and K such layers add up to
sqrt(2 K e / pi). For a variable with gradient g, in the norm over all of its entries, this gives

    tolerance = (4 e + sqrt(2 K e / pi)) * M,

4 standard deviations of the smooth part, but only one of the non-smooth part. In the latter, e is
too large: kernels add up in blocks, and blocks of 256 reduce e to 1 / 16. Its square root is 1 / 4,
so one standard deviation is in fact 4. M is the size of the terms. It is not ``|g|``, which
cancellation can make small: terms t_i with random signs s_i have E|sum s_i t_i|^2 = sum |t_i|^2, so
M is the largest norm among g and gradients of the same examples with random signs on their losses.

In 16 bits, results are rounded to 16 bits once per layer and direction, and sums are carried in
float32: n counts layers instead of terms. The reference takes each batch in the same parts, so
the inputs of non-smooth operations are rounded alike: K is 0.

M shows cancellation between examples, but not within each of them. The bias of a convolution
before a normalization, or of the keys of an attention, has the gradient 0, as a sum of terms that
are not 0: g and M are nothing but the rounding of these terms. So rounding is also measured, as in
Monte Carlo arithmetic (Parker 1997, "Monte Carlo Arithmetic: exploiting randomness in
floating-point arithmetic"): the reference computes the same gradients again from weights that each
have a random relative error of at most u. The largest norm of a change is R, an estimate of the
difference of two computations; 4 R is allowed if it exceeds the bound above. But it is never more
than the rounding of a gradient as large as the whole model's,

    tolerance = max((4 e + sqrt(2 K e / pi)) * M, min(4 R, 4 e * sqrt(sum of M^2))),

with the sum over all variables: no measurement excuses more than rounding. Without cancellation,
4 R is below the first bound, which is derived for sums in the worst order.

A mistake is of the order of M / sqrt(parts) or more: a part that is dropped, counted twice, or has
other rows, and a mean in place of a sum.

**A trajectory in float64.** Amplification is measured, too: the reference trains again from weights
that each have the rounding error of a sum in blocks, e / 16. 4 times the difference of the final
weights is allowed if that exceeds :data:`TRAJECTORY_TOLERANCE`. The rounding is that of float64, or
that of float32 for a model whose code casts to float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

ROUNDOFF = {
    "float32": 2.0**-24,
    "float64": 2.0**-53,
    "mixed_bfloat16": 2.0**-8,
    "mixed_float16": 2.0**-11,
}
"""Unit roundoff of ``parallel.precision``: half the distance from 1 to the next number."""

DEVIATIONS = 4.0
"""Standard deviations that count as rounding."""

TRAJECTORY_TOLERANCE = 1e-10
"""Largest absolute difference of a float64 weight at the end of the trajectory."""


def tolerance(precision: str, depth: float, magnitude: float, nonsmooth_ops: int = 0) -> float:
    """Largest norm of a gradient's difference that rounding explains.

    ``depth`` is n, the number of additions (in 16 bits: of roundings) on the gradient's way,
    ``magnitude`` M, ``nonsmooth_ops`` K, the number of non-smooth layers.
    """
    error = math.sqrt(2 / 3) * ROUNDOFF[precision] * math.sqrt(depth)
    return (DEVIATIONS * error + math.sqrt(2 * nonsmooth_ops * error / math.pi)) * magnitude


def measured_tolerance(
    precision: str, depth: float, magnitudes: Mapping[str, float], rounding: float
) -> float:
    """Largest norm of a gradient's difference that measured rounding explains.

    ``depth`` is n, ``magnitudes`` are M of every variable, ``rounding`` is R.
    """
    of_all = tolerance(precision, depth, math.hypot(*magnitudes.values()))
    return min(DEVIATIONS * rounding, of_all)


def rounding_of_sums(precision: str, depth: float) -> float:
    """Relative error of a sum of ``depth`` terms, in blocks of 256; at least the unit roundoff."""
    return ROUNDOFF[precision] * max(1.0, math.sqrt(2 / 3 * depth) / 16)


def rounded(values: np.ndarray, error: float, draw: np.random.RandomState) -> np.ndarray:
    """Adds a random relative error of at most ``error`` to each value; keeps the dtype."""
    errors = draw.uniform(-error, error, values.shape)
    return np.asarray(values * (1 + errors), values.dtype)
