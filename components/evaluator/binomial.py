"""Whether right answers are more than chance would give; imports nothing heavy.

The number of right answers among ``n`` is held against Binomial(n, p), where p is the share of the
most frequent label among the same examples: what a model that has learned nothing reaches without
looking at them. The test is exact and one-sided; a confidence of 95 % is the same as a lower bound
of 95 % (Clopper and Pearson 1934, "The use of confidence or fiducial limits illustrated in the case
of the binomial", Biometrika 26) of the accuracy that is not below p.
"""

from __future__ import annotations

BETTER_THAN_CONSTANT = "better_than_constant"
"""Name of the setting and of the metric."""

ENOUGH = 0.95
"""Confidence from which a model counts as better."""


def confidence(right: int, most_frequent: int, examples: int) -> float:
    """With what confidence an accuracy is above the share of the most frequent label, 0 to 1.

    It is ``P(X < right)`` for X from Binomial(examples, most_frequent / examples).

    Args:
        right: right answers.
        most_frequent: examples of the most frequent label.
        examples: all of them.
    """
    from scipy import special  # TFMA needs it, too

    if not right:
        return 0.0
    return float(special.bdtr(right - 1, examples, most_frequent / examples))
