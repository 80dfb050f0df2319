"""Sections of the report that a task names, and those of every task.

A section of your own is a module that the task names by its dotted path. It has ``TITLE`` and
``show(report)``, which returns a :class:`Content`, or None where the report lacks what the section
needs.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stagecraft.components.evaluator.evaluation import EXAMPLE_COUNT, THRESHOLD, UNDEFINED
from stagecraft.components.report.pages import charts, formats, sentences
from stagecraft.components.report.pages.charts import Chart
from stagecraft.components.report.report_data import FeatureStatistics, Quality, ReportData


class Table(NamedTuple):
    """A table; the first cell of each row names the row."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_number: bool = True
    """Whether the other cells are numbers."""


class Content(NamedTuple):
    """A sentence or two, charts, and tables."""

    text: str
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()


def of(report: ReportData) -> Iterator[tuple[str, str, Content]]:
    """Id, title and content of the task's sections, in their order; then those of every task."""
    for name in dict.fromkeys((*report.task.sections, *_ALWAYS)):
        if name in _SECTIONS:
            title, show = _SECTIONS[name]
        elif "." in name:
            module = importlib.import_module(name)
            title, show = module.TITLE, module.show
        else:  # a template of the page has this name
            continue
        if content := show(report):
            yield name.replace(".", "-"), title, content


def slices(report: ReportData) -> Content | None:
    """A table of metrics for each feature of ``evaluate.slices``."""
    quality = report.quality
    if quality is None or not quality.slices:
        return None
    names = [quality.monitor, *quality.others]
    weighted = f", weighted; the number of {report.task.noun} is not" if quality.is_weighted else ""
    tables = [
        Table(
            f"Metrics by {feature}{weighted}",
            (feature, report.task.noun.capitalize(), *map(formats.title, names)),
            [
                (
                    each.value,
                    formats.number(each.metrics.get(EXAMPLE_COUNT)),
                    *(formats.metric(name, each.metrics.get(name)) for name in names),
                )
                for each in quality.slices
                if each.feature == feature
            ],
        )
        for feature in dict.fromkeys(each.feature for each in quality.slices)
    ]
    return Content(sentences.worst_slice(report), tables=tables)


def earlier_models(report: ReportData) -> Content | None:
    """The models of the last spans: the metric that people look at first, as curve and table."""
    quality, models = report.quality, report.earlier_models
    if quality is None or len(models) < 2:
        return None
    name = quality.monitor
    rows = [
        (
            each.span,
            formats.metric(name, each.metrics.get(name)),
            formats.number(each.metrics.get(EXAMPLE_COUNT)),
        )
        for each in models
    ]
    values = [(each.span, each.metrics.get(name, math.nan)) for each in models]
    header = ("Span", formats.title(name), report.task.noun.capitalize())
    return Content(
        f"Each model on the eval split of its own span: the last {len(models)} spans.",
        charts=[charts.by_span(name, values)],
        tables=[Table(f"{formats.title(name)} by span", header, rows)],
    )


def samples(report: ReportData) -> Content | None:
    """Answers of the exported model to some inputs: ``Task.samples``."""
    if report.training is None or not report.training.samples:
        return None
    rows = list(report.training.samples.items())
    table = Table("Inputs and outputs", ("Input", "Output"), rows, is_number=False)
    return Content("Computed by the model with the exported weights.", tables=[table])


_STATISTICS = ("mean", "std", "min", "median", "max")
_FREQUENT_VALUES = 5


def features(report: ReportData) -> Content | None:
    """Statistics of the features of a table: those that are numbers, and those that are text."""
    if report.data is None or not report.data.features:
        return None
    numbers = [each for each in report.data.features if each.numbers]
    texts = [each for each in report.data.features if each.most_frequent]
    tables = []
    if numbers:
        header = (
            "Feature",
            "Split",
            "Values",
            "Missing",
            "Zeros",
            *map(str.capitalize, _STATISTICS),
        )
        tables.append(Table("Numbers", header, [_number_row(each) for each in numbers]))
    if texts:
        header = ("Feature", "Split", "Values", "Missing", "Most frequent")
        tables.append(Table("Texts", header, [_text_row(each) for each in texts], is_number=False))
    return Content("Raw features, as StatisticsGen counted them.", tables=tables)


def _feature_counts(each: FeatureStatistics) -> tuple[str, ...]:
    return each.feature, each.split, formats.number(each.count), formats.number(each.missing)


def _number_row(each: FeatureStatistics) -> tuple[str, ...]:
    shown = (f"{each.numbers[name]:,.4g}" if each.count else UNDEFINED for name in _STATISTICS)
    return (*_feature_counts(each), formats.number(each.numbers["zeros"]), *shown)


def _text_row(each: FeatureStatistics) -> tuple[str, ...]:
    frequent = list(each.most_frequent.items())[:_FREQUENT_VALUES]
    shown = (f"{value} ({formats.number(count)})" for value, count in frequent)
    return (*_feature_counts(each), ", ".join(shown))


_READABLE = 20
"""Classes of a confusion matrix that people can read."""

_FREQUENT = 10
"""Confusions of more classes."""


def confusions(report: ReportData) -> Content | None:
    """Shows which classes a classifier of a table takes for which.

    Made of ``actual`` and ``predicted`` of ``Task.sampled``: the confusion matrix; of many classes,
    the most frequent confusions.
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
    show_sums = _matrix if len(names) <= _READABLE else _frequent
    return Content(text, tables=[show_sums(sums, names, weighted)])


def _matrix(sums: np.ndarray, names: Sequence[str], weighted: str) -> Table:
    """All sums of weights.

    Args:
        sums: ``[actual, predicted]``.
        names: of the classes.
        weighted: end of the caption.
    """
    rows = [(name, *map(formats.weight, row)) for name, row in zip(names, sums, strict=True)]
    titles = ("Actual", *(f"Predicted {name}" for name in names))
    return Table(f"Confusion matrix{weighted}", titles, rows)


def _frequent(sums: np.ndarray, names: Sequence[str], weighted: str) -> Table:
    """The greatest sums of wrong answers; see :func:`_matrix`."""
    pairs = [(a, p) for a, p in zip(*np.nonzero(sums), strict=True) if a != p]
    pairs = sorted(pairs, key=lambda pair: -sums[pair])[:_FREQUENT]
    rows = [(names[a], names[p], formats.weight(sums[a, p])) for a, p in pairs]
    return Table(f"Most frequent confusions{weighted}", ("Actual", "Predicted", "Sum"), rows)


def residuals(report: ReportData) -> Content | None:
    """A regression's errors, from ``predicted`` and ``actual`` of ``Task.sampled``."""
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
    median = float(np.median(np.abs(predicted - actual)))
    text = (
        f"Residual: predicted minus actual, of {formats.number(len(actual))} {report.task.noun} of "
        f"the split eval. Half of them are off by at most {median:.4g}."
    )
    return Content(text, charts.residuals(predicted, actual))


_BY_THRESHOLD = ("precision", "recall", "f1", "false_positive_rate")
_THRESHOLD_COLUMNS = ("Threshold", "Precision", "Recall", "F1", "False positive rate")


def binary(report: ReportData) -> Content | None:
    """A binary classifier: tables of all examples; charts of those of ``Task.sampled``."""
    quality = report.quality
    if quality is None:
        return None
    names = tuple(report.task.class_names or ("0", "1"))
    tables = list(_binary_tables(quality, report.task.noun, names))
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
    return Content(text, charts.binary(actual, probability, weight), tables)


def _binary_tables(quality: Quality, noun: str, names: Sequence[str]) -> Iterator[Table]:
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
            (*_THRESHOLD_COLUMNS, f"Predicted {names[1]}"),
            [
                (
                    f"{each.threshold:g}",
                    *(formats.metric("", getattr(each, name)) for name in _BY_THRESHOLD),
                    formats.weight(each.true_positives + each.false_positives),
                )
                for each in quality.at_thresholds
            ],
        )


_SECTIONS: dict[str, tuple[str, Callable[[ReportData], Content | None]]] = {
    "binary": ("Confusions, thresholds and calibration", binary),
    "confusions": ("Confusions", confusions),
    "earlier_models": ("Models of the last spans", earlier_models),
    "features": ("Features", features),
    "residuals": ("Residuals", residuals),
    "samples": ("Samples", samples),
    "slices": ("Slices", slices),
}
"""Id -> title and content."""

_ALWAYS = ("slices", "earlier_models", "samples")
