"""A report as one HTML page with all its resources inside, for any browser, online and offline."""

from __future__ import annotations

import base64
import functools
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from stagecraft.components.report.pages import (
    charts,
    formats,
    quality_text,
    step_timeline,
    training_text,
)
from stagecraft.components.report.pages.charts import Chart
from stagecraft.components.report.report_data import Quality, ReportData

_MATRIX = 20  # most classes of a confusion matrix that the page shows as a table

_STRONGEST = 50  # most percent of colour in a cell; text stays readable on it


class Section(NamedTuple):
    """A section of the page; ``id`` is also the name of its template."""

    id: str
    title: str


class Mark(NamedTuple):
    """A mark on the scale of accuracy."""

    at: float
    text: str
    side: str


class Cell(NamedTuple):
    """A cell of the confusion matrix."""

    examples: int
    colour: str
    strength: int
    """Percent."""


class Replica(NamedTuple):
    """The devices of a replica, one for each stage."""

    name: str
    devices: list[str]


def render(report: ReportData) -> str:
    """The page."""
    context: dict[str, Any] = {"report": report, "version": formats.version(), "css": _css()}
    context |= {"tiles": training_text.tiles(report), "marks": _marks(report.quality)}
    context["failure"] = quality_text.failure(report)
    context["unrecorded"] = training_text.unrecorded(report)
    sections = []
    if report.training:
        sections.append(Section("training", "Training"))
        context |= _training(report)
    if report.quality:
        sections.append(Section("quality", "Per-class quality"))
        context["compared"] = quality_text.compared(report.quality)
        context |= _quality(report.quality)
        if report.quality.mistakes:
            sections.append(Section("mistakes", "Most confident errors"))
    if report.data:
        sections.append(Section("data", "Data"))
        context |= {
            "data_text": quality_text.data_text(report),
            "few": len(report.class_names) <= _MATRIX,
        }
    if report.training:
        sections.append(Section("topology", "Topology"))
        context |= _topology(report)
    if report.parity:
        sections.append(Section("parity", "Parity"))
    if report.components:
        sections.append(Section("pipeline", "Pipeline"))
        context |= _pipeline(report)
    if report.lineage:
        sections.append(Section("lineage", "Lineage"))
    if report.lineage or report.settings or report.command:
        sections.append(Section("reproduce", "Reproduce this run"))
        context |= _reproduce(report)
    return _environment().get_template("page.html.j2").render(sections=sections, **context)


@functools.cache
def _environment() -> jinja2.Environment:
    """Loads the templates. They escape all values except charts."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stagecraft.components.report.pages"),
        autoescape=jinja2.select_autoescape(("html.j2",), default_for_string=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": formats.percent,
        "number": formats.number,
        "bytes": formats.size,
        "duration": formats.duration,
        "png": _png,
    }
    return environment


def _css() -> Markup:
    loader = _environment().loader
    assert loader is not None
    return Markup(loader.get_source(_environment(), "page.css")[0])


def _png(image: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(image).decode()


def _safe(chart: Chart | None) -> dict[str, Any] | None:
    return None if chart is None else {"title": chart.title, "svg": Markup(chart.svg)}


def _marks(quality: Quality | None) -> list[Mark]:
    """The accuracies that the model is compared with."""
    if quality is None:
        return []
    marks = []
    if quality.min_accuracy:
        marks.append((quality.min_accuracy, f"required {formats.percent(quality.min_accuracy)}"))
    if quality.baseline is not None:
        marks.append((quality.baseline, f"last blessed {formats.percent(quality.baseline)}"))
    return [Mark(at, text, _side(at)) for at, text in marks]


def _side(at: float) -> str:
    """The side of a mark that has room for its text."""
    return "first" if at < 0.2 else "last" if at > 0.8 else ""


def _training(report: ReportData) -> dict[str, Any]:
    assert report.training
    return {
        "trained": training_text.trained(report.training),
        "curves": [_safe(chart) for chart in charts.curves(report.training)],
    }


def _quality(quality: Quality) -> dict[str, Any]:
    error = quality.metrics.get("expected_calibration_error")
    return {
        "most_confused": quality_text.most_confused(quality),
        "matrix": _matrix(quality.confusion) if len(quality.confusion) <= _MATRIX else None,
        "confusions": quality_text.confusions(quality),
        "calibration": _safe(charts.calibration(quality.calibration, error)),
        "calibrated": quality_text.calibrated(quality) if quality.calibration else "",
    }


def _matrix(confusion: list[list[int]]) -> list[list[Cell]]:
    wrong = [
        count
        for actual, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        if actual != predicted
    ]
    worst = max(wrong, default=0) or 1
    return [
        [
            Cell(count, "green", round(_STRONGEST * count / (sum(row) or 1)))
            if actual == predicted
            else Cell(count, "red", round(_STRONGEST * count / worst))
            for predicted, count in enumerate(row)
        ]
        for actual, row in enumerate(confusion)
    ]


def _topology(report: ReportData) -> dict[str, Any]:
    assert report.training
    record, timeline = report.training.record, report.training.timeline
    devices, stages = record["topology"]["devices"], record["topology"]["stages"]
    rows = [devices[first : first + stages] for first in range(0, len(devices), stages)]
    several = record["topology"]["workers"] > 1
    replicas = [
        Replica(f"{number}{' of each process' if several else ''}", row)
        for number, row in enumerate(rows)
    ]
    plan = record["plan"]
    return {
        "topology": training_text.topology(record),
        "replicas": replicas if len(devices) > 1 else [],
        "shares": timeline["shares"] if timeline else None,
        "measured": _safe(step_timeline.measured(timeline)) if timeline else None,
        "planned": _safe(step_timeline.planned(plan)) if plan and timeline else None,
        "unprofiled": training_text.unprofiled(record, report.command),
        "idle_text": training_text.idle_text(report.training) if timeline else "",
    }


def _pipeline(report: ReportData) -> dict[str, Any]:
    length = max(each.begin + each.seconds for each in report.components)
    cached = sum(each.state == "cached" for each in report.components)
    text = f"{formats.duration(length)} from the first component to the last."
    if cached:
        text += f" {cached} of {len(report.components)} components came from the cache."
    return {"length": length or 1.0, "pipeline_text": text}


def _reproduce(report: ReportData) -> dict[str, Any]:
    code = [
        item.properties["code_fingerprint"]
        for item in report.lineage
        if "code_fingerprint" in item.properties
    ]
    return {
        "options": training_text.options(report.training) if report.training else [],
        "fingerprint": report.data.fingerprint if report.data else "",
        "code": code[0] if code else "",
    }
