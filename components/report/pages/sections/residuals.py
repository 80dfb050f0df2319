"""A regression's errors: their histogram, and predicted against actual values."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from stagecraft.components.report.pages import formats
from stagecraft.components.report.pages.charts import SIZE, STYLE, Chart, Ink, inline
from stagecraft.components.report.pages.sections.content import Content
from stagecraft.components.report.report_data import ReportData

TITLE = "Residuals"

_BINS = 30
_POINTS = 500  # of the scatter plot; more would make the page large
_DASHED = (0, (4, 3))


def show(report: ReportData) -> Content | None:
    """Both charts, from ``predicted`` and ``actual`` of ``Task.sampled``."""
    sampled = report.quality.sampled if report.quality else {}
    if not sampled.get("actual") or "predicted" not in sampled:
        return None
    predicted, actual, weight = (
        np.array(sampled[name]) for name in ("predicted", "actual", "weight")
    )
    counted = np.isfinite(predicted) & np.isfinite(actual) & (weight > 0)
    predicted, actual = predicted[counted], actual[counted]
    if not len(actual):
        return None
    with matplotlib.rc_context(STYLE):
        charts = [_histogram(predicted - actual), _scatter(predicted, actual)]
    median = float(np.median(np.abs(predicted - actual)))
    text = (
        f"Residual: predicted minus actual, of {formats.number(len(actual))} {report.task.noun} of "
        f"the split eval. Half of them are off by at most {median:.4g}."
    )
    return Content(text, charts)


def _histogram(residuals: np.ndarray) -> Chart:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    counts, edges = np.histogram(residuals, _BINS)
    tips = {}
    for number, count in enumerate(counts):
        gid = f"residual-{number}"
        low, high = edges[number : number + 2]
        axes.bar(low, count, high - low, align="edge", color=Ink.BLUE, gid=gid)
        tips[gid] = f"{count:,} from {low:.4g} to {high:.4g}"
    axes.axvline(0, color=Ink.MUTED, linewidth=1.2, linestyle=_DASHED)
    axes.grid(axis="x", visible=False)
    axes.tick_params(length=0)
    axes.set_xlabel("predicted − actual")
    mean, spread = residuals.mean(), residuals.std()
    alt = f"Histogram of residuals: mean {mean:.4g}, standard deviation {spread:.4g}."
    return Chart("Histogram of residuals", inline(figure, "residuals", alt, tips))


def _scatter(predicted: np.ndarray, actual: np.ndarray) -> Chart:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.plot(actual[:_POINTS], predicted[:_POINTS], "o", color=Ink.BLUE, markersize=3, alpha=0.5)
    ends = [min(actual.min(), predicted.min()), max(actual.max(), predicted.max())]
    axes.plot(ends, ends, color=Ink.MUTED, linewidth=1.2, linestyle=_DASHED)
    axes.tick_params(length=0)
    axes.set_xlabel("actual")
    axes.set_ylabel("predicted")
    alt = (
        f"Predicted against actual values: actual from {actual.min():.4g} to {actual.max():.4g}, "
        f"predicted from {predicted.min():.4g} to {predicted.max():.4g}."
    )
    return Chart("Predicted against actual", inline(figure, "scatter", alt))
