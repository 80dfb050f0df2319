"""A binary classifier: confusion matrix, metrics by threshold, ROC curve and calibration.

The curve has the true positive rate over the false positive rate of all thresholds (Fawcett 2006,
"An introduction to ROC analysis", algorithm 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stagecraft.components.evaluator.evaluation import THRESHOLD
from stagecraft.components.report.pages import formats
from stagecraft.components.report.pages.charts import SIZE, STYLE, Chart, Ink, inline
from stagecraft.components.report.pages.sections.content import Content, Table
from stagecraft.components.report.report_data import Quality, ReportData

TITLE = "Confusions, thresholds and calibration"

_BINS = 10
_BY_THRESHOLD = ("precision", "recall", "f1", "false_positive_rate")
_COLUMNS = ("Threshold", "Precision", "Recall", "F1", "False positive rate")
_DASHED = (0, (4, 3))


def show(report: ReportData) -> Content | None:
    """The tables, of all examples; the charts, of those of ``Task.sampled``."""
    quality = report.quality
    if quality is None:
        return None
    names = tuple(report.task.class_names or ("0", "1"))
    tables = list(_tables(quality, report.task.noun, names))
    sampled = quality.sampled
    if not sampled.get("actual") or "probability" not in sampled:
        return Content("", tables=tables) if tables else None
    actual, probability, weight = (
        np.array(sampled[name]) for name in ("actual", "probability", "weight")
    )
    counted = np.isfinite(probability) & (weight > 0)
    actual, probability, weight = actual[counted], probability[counted], weight[counted]
    if not len(actual):
        return Content("", tables=tables) if tables else None
    positive = float((weight * actual).sum() / weight.sum())
    mean = float((weight * probability).sum() / weight.sum())
    named = f" ({report.task.class_names[1]})" if report.task.class_names else ""
    text = (
        f"From {formats.number(len(actual))} {report.task.noun} of the split eval. "
        f"Positive{named}: {formats.percent(positive)}; mean predicted probability: "
        f"{formats.percent(mean)}."
    )
    if len(set(actual.tolist())) < 2:
        alone = "positive" if actual[0] else "negative"
        return Content(f"{text} All are {alone}, so there is no ROC curve.", tables=tables)
    with matplotlib.rc_context(STYLE):
        charts = [_roc(actual, probability, weight), _calibration(actual, probability, weight)]
    return Content(text, charts, tables)


def _tables(quality: Quality, noun: str, names: Sequence[str]) -> Iterator[Table]:
    """The confusion matrix, and metrics by threshold: the Evaluator's."""
    counted = f"sums of the weights of the {noun}" if quality.is_weighted else noun
    for each in quality.at_thresholds:
        if each.threshold == THRESHOLD:
            rows = [
                (names[0], *map(formats.weight, (each.true_negatives, each.false_positives))),
                (names[1], *map(formats.weight, (each.false_negatives, each.true_positives))),
            ]
            caption = f"Confusion matrix at the threshold {THRESHOLD}: {counted}"
            yield Table(caption, ("Actual", *(f"Predicted {name}" for name in names)), rows)
    if quality.at_thresholds:
        yield Table(
            "Metrics by threshold: an example counts as positive above it"
            + (". Weighted" if quality.is_weighted else ""),
            (*_COLUMNS, f"Predicted {names[1]}"),
            [
                (
                    f"{each.threshold:g}",
                    *(formats.metric("", getattr(each, name)) for name in _BY_THRESHOLD),
                    formats.weight(each.true_positives + each.false_positives),
                )
                for each in quality.at_thresholds
            ],
        )


def rates(
    actual: np.ndarray, probability: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates from the highest threshold to the lowest: ``[thresholds]``."""
    order = np.argsort(-probability, kind="stable")
    values = probability[order]
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of equal probabilities
    found = []
    for hits in (weight * (1 - actual), weight * actual):
        sums = np.cumsum(hits[order])[last]
        found.append(np.append(0.0, sums / sums[-1]))
    return found[0], found[1]


def _axes() -> tuple[Figure, matplotlib.axes.Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.tick_params(length=0)
    axes.plot([0, 1], [0, 1], color=Ink.MUTED, linewidth=1.2, linestyle=_DASHED)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure, axes


def _roc(actual: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> Chart:
    false, true = rates(actual, probability, weight)
    figure, axes = _axes()
    axes.plot(false, true, color=Ink.BLUE)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    area = float(((false[1:] - false[:-1]) * (true[1:] + true[:-1])).sum() / 2)
    return Chart("ROC curve", inline(figure, "roc", f"ROC curve with the area {area:.3f}."))


def _calibration(actual: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> Chart:
    figure, axes = _axes()
    bins = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    tips = {}
    for number in np.unique(bins):
        part = bins == number
        total = weight[part].sum()
        share, mean = (
            (weight * of)[part].sum() / total if total else 0.0 for of in (actual, probability)
        )
        gid = f"probability-{number}"
        axes.bar(mean, share, 0.05, color=Ink.BLUE, gid=gid)
        tips[gid] = f"{part.sum():,} predictions, mean {mean:.0%}, positive {share:.0%}"
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("positive")
    alt = f"Share of positives by predicted probability, in {_BINS} bins."
    return Chart("Calibration", inline(figure, "probabilities", alt, tips))
