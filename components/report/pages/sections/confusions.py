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


def show(report: ReportData) -> Content | None:
    """The confusion matrix, from ``actual`` and ``predicted`` of ``Task.sampled``."""
    sampled = report.quality.sampled if report.quality else {}
    if not sampled.get("actual") or "predicted" not in sampled:
        return None
    actual, predicted, weight = (
        np.array(sampled[name]) for name in ("actual", "predicted", "weight")
    )
    counted = weight > 0
    count = int(max(actual[counted].max(initial=0), predicted[counted].max(initial=0))) + 1
    names = report.task.class_names or tuple(map(str, range(count)))
    if not counted.any() or len(names) > _MOST:
        return None
    text = f"From {formats.number(int(counted.sum()))} {report.task.noun} of the split eval."
    return Content(
        text, tables=[matrix(actual[counted], predicted[counted], weight[counted], names)]
    )


def matrix(
    actual: np.ndarray, predicted: np.ndarray, weight: np.ndarray, names: Sequence[str]
) -> Table:
    """Weights by actual and predicted class; ``names``: of the classes."""
    rows = []
    for label, name in enumerate(names):
        counts = np.bincount(
            predicted.astype(int), weight * (actual == label), minlength=len(names)
        )
        rows.append((name, *map(formats.number, counts)))
    return Table("Confusion matrix", ("Actual", *(f"Predicted {name}" for name in names)), rows)
