"""Sentences about the result of a run: verdict, quality, data."""

from __future__ import annotations

import math
import shlex

from stagecraft.components.evaluator.evaluation import BETTER_THAN_CONSTANT, MAX, MIN
from stagecraft.components.report.pages.formats import metric, number, percent, title
from stagecraft.components.report.report_data import Quality, ReportData


def verdict(report: ReportData) -> str:
    """Whether the model is good enough."""
    quality, failed = report.quality, failure(report)
    if quality is None:
        return failed or "Not evaluated."
    name, examples = quality.monitor, quality.metrics["example_count"]
    text = f"{title(name)} {metric(name, quality.value)} on {number(examples)} {report.task.noun}"
    if quality.baseline is not None:
        text += f" (last blessed model: {metric(name, quality.baseline)})"
    if not quality.blessed:
        text += f". Not blessed: {'; '.join(quality.failures) or 'no reason given'}."
    elif report.pushed_to:
        text += f". Blessed and pushed as version {report.pushed_version}."
    else:
        text += ". Blessed, not pushed."
    return " ".join(filter(None, (text, compared_with_constant(quality), failed)))


def failure(report: ReportData) -> str:
    """Which component failed or was stopped, and why; empty if the run completed."""
    if not (component := report.broken):
        return ""
    if component.state == "stopped":
        without = " without --fresh" if "--fresh" in shlex.split(report.command) else ""
        return f"{component.name} was stopped. To resume the run, repeat the same command{without}."
    return f"{component.name} failed: {component.cause.rstrip('.') or 'unknown cause'}."


def compared_with_constant(quality: Quality) -> str:
    """By how much the model is better than a constant; empty if the verdict says it."""
    if not quality.comparison or quality.comparison in quality.failures:
        return ""
    first, _, rest = quality.comparison.partition(" ")
    return f"{title(first)} {rest}."


def compared(quality: Quality) -> str:
    """Compares the metric ``monitor`` with that of the last blessed model."""
    if quality.baseline is None:
        return "There was no blessed model to compare with."
    if not quality.is_share:
        name = quality.monitor
        return f"The last blessed model has {name} {metric(name, quality.baseline)}."
    points = round(100 * quality.changes["accuracy"], 2)
    if not points:
        return "As accurate as the last blessed model."
    side = "above" if points > 0 else "below"
    return f"{abs(points):g} percentage points {side} the last blessed model."


def required(quality: Quality) -> str:
    """The thresholds of a blessing; empty if there are none."""
    texts = [
        f"{name} {words} {metric(name, bounds[bound])}"
        for name, bounds in quality.thresholds.items()
        for bound, words in ((MIN, "at least"), (MAX, "at most"))
        if bound in bounds and name != BETTER_THAN_CONSTANT
    ]
    return f"Required: {', '.join(texts)}." if texts else ""


def weighted(quality: Quality) -> str:
    """Whether the metrics count the examples by their weights; empty if they have none."""
    return "All metrics are weighted by the weights of the examples." if quality.is_weighted else ""


def worst_slice(report: ReportData) -> str:
    """The slice with the worst metric ``monitor``; empty without slices."""
    quality = report.quality
    if quality is None or not quality.slices:
        return ""
    name = quality.monitor
    known = [each for each in quality.slices if not math.isnan(each.metrics.get(name, math.nan))]
    if not known:
        return ""
    choose = min if report.task.higher_is_better else max
    worst = choose(known, key=lambda each: each.metrics[name])
    shown = metric(name, worst.metrics[name])
    return f"Worst {name} of a slice: {shown}, of {worst.feature} {worst.value}."


def confusions(quality: Quality, most: int = 10) -> list[tuple[str, str, int]]:
    """Actual class, predicted class and examples of the confusions, most frequent first."""
    names = [each.name for each in quality.classes]
    pairs = [
        (names[actual], names[predicted], count)
        for actual, row in enumerate(quality.confusion)
        for predicted, count in enumerate(row)
        if count and actual != predicted
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:most]


def most_confused(quality: Quality) -> str:
    """The most frequent confusion."""
    for actual, predicted, examples in confusions(quality, 1):
        return (
            f"Most frequent confusion: {actual} predicted as {predicted}, {number(examples)} times."
        )
    return "No class was confused with another."


def calibrated(quality: Quality) -> str:
    """Whether the model is overconfident."""
    bins = quality.calibration
    count = sum(each.examples for each in bins)
    accuracy = sum(each.examples * each.accuracy for each in bins) / count
    confidence = sum(each.examples * each.confidence for each in bins) / count
    return (
        f"The model is {'over' if confidence > accuracy else 'under'}confident: mean confidence "
        f"{percent(confidence)}, accuracy {percent(accuracy)}. The bars of a calibrated model end "
        "on the dashed line. The lower chart shows the number of predictions."
    )


def data_text(report: ReportData) -> str:
    """The examples of each split, and the anomalies."""
    data = report.data
    if data is None:
        return "Unknown."
    counts = ", ".join(f"{number(split.examples)} {split.name}" for split in data.splits)
    source = data.source or "The examples"
    text = f"{source}{f' ({data.span})' if data.span else ''}: {counts}."
    if data.span:
        trained = f"trained on {data.window}, and " if data.window else ""
        name = data.span.partition(",")[0]
        text += f" The model is {trained}evaluated on the split eval of {name}."
    if data.unseen:
        text += f" These examples count nowhere, since train lacks their labels: {data.unseen}."
    if data.anomalies is None:
        return text
    anomalies = [f"{split}: {each}" for split, found in data.anomalies.items() for each in found]
    return f"{text} {'Anomalies: ' + '; '.join(anomalies) if anomalies else 'No anomalies'}."
