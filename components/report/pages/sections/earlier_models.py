"""The models of the last spans, each on its own span."""

from __future__ import annotations

import math

from stagecraft.components.evaluator.evaluation import EXAMPLE_COUNT
from stagecraft.components.report.pages import charts, formats
from stagecraft.components.report.pages.sections.content import Content, Table
from stagecraft.components.report.report_data import ReportData

TITLE = "Models of the last spans"


def show(report: ReportData) -> Content | None:
    """A curve and a table of the metric that people look at first."""
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
