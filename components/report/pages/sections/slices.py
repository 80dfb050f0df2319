"""The metrics of each slice."""

from __future__ import annotations

from stagecraft.components.evaluator.evaluation import EXAMPLE_COUNT
from stagecraft.components.report.pages import formats, sentences
from stagecraft.components.report.pages.sections.content import Content, Table
from stagecraft.components.report.report_data import ReportData

TITLE = "Slices"


def show(report: ReportData) -> Content | None:
    """A table for each feature of ``evaluate.slices``."""
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
