"""A classifier of a table: which classes it takes for which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stagecraft.components.report.pages import formats
from stagecraft.components.report.pages.sections.content import Content, Table
from stagecraft.components.report.report_data import ReportData

TITLE = "Confusions"

_MOST = 20
"""Classes of a table that people can read."""

_FREQUENT = 10
"""Confusions of more classes."""


def show(report: ReportData) -> Content | None:
    """The confusion matrix, from ``actual`` and ``predicted`` of ``Task.sampled``.

    Of many classes, the most frequent confusions.
    """
    sampled = report.quality.sampled if report.quality else {}
    if not sampled.get("actual") or "predicted" not in sampled:
        return None
    actual, predicted, weight = (
        np.array(sampled[name]) for name in ("actual", "predicted", "weight")
    )
    counted = weight > 0
    count = int(max(actual[counted].max(initial=0), predicted[counted].max(initial=0))) + 1
    names = report.task.class_names or tuple(map(str, range(count)))
    if not counted.any():
        return None
    text = f"From {formats.number(int(counted.sum()))} {report.task.noun} of the split eval."
    sums = np.zeros([len(names)] * 2)
    places = actual[counted].astype(int), predicted[counted].astype(int)
    np.add.at(sums, places, weight[counted])
    weighted = ", weighted" if report.quality and report.quality.is_weighted else ""
    show_sums = matrix if len(names) <= _MOST else frequent
    return Content(text, tables=[show_sums(sums, names, weighted)])


def matrix(sums: np.ndarray, names: Sequence[str], weighted: str = "") -> Table:
    """All sums of weights.

    Args:
        sums: ``[actual, predicted]``.
        names: of the classes.
        weighted: end of the caption.
    """
    rows = [(name, *map(formats.weight, row)) for name, row in zip(names, sums, strict=True)]
    titles = ("Actual", *(f"Predicted {name}" for name in names))
    return Table(f"Confusion matrix{weighted}", titles, rows)


def frequent(sums: np.ndarray, names: Sequence[str], weighted: str = "") -> Table:
    """The greatest sums of wrong answers; see :func:`matrix`."""
    pairs = [(a, p) for a, p in zip(*np.nonzero(sums), strict=True) if a != p]
    pairs = sorted(pairs, key=lambda pair: -sums[pair])[:_FREQUENT]
    rows = [(names[a], names[p], formats.weight(sums[a, p])) for a, p in pairs]
    return Table(f"Most frequent confusions{weighted}", ("Actual", "Predicted", "Sum"), rows)
