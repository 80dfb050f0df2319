"""A binomial test of whether a classifier is better than a constant. Imports nothing heavy.

The number of correct predictions among ``n`` examples is compared with Binomial(n, p). Here p is
the share of the most frequent label among the same examples: the accuracy of a model that always
predicts this label. The test is exact and one-sided. A confidence of 95 % means that the lower 95 %
bound of the accuracy is at least p (Clopper and Pearson 1934, "The use of confidence or fiducial
limits illustrated in the case of the binomial", Biometrika 26).
"""

from __future__ import annotations

BETTER_THAN_CONSTANT = "better_than_constant"
"""Name of the setting and of the metric."""

ENOUGH = 0.95
"""Confidence from which a model counts as better."""


def confidence(num_correct: int, most_frequent: int, examples: int) -> float:
    """Confidence, 0 to 1, that an accuracy is above the share of the most frequent label.

    It is ``P(X < num_correct)`` for X from Binomial(examples, most_frequent / examples).
    """
    from scipy import special  # TFMA depends on it

    if not num_correct:
        return 0.0
    return float(special.bdtr(num_correct - 1, examples, most_frequent / examples))
