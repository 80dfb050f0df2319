"""The facts as one page: HTML with all that it needs inside, for any browser, on and off line."""

from __future__ import annotations

import base64
import functools
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from stagecraft.components.report.facts import Facts, Quality
from stagecraft.components.report.pages import charts, step_timeline, wording
from stagecraft.components.report.pages.charts import Chart

_MATRIX = 20
"""Classes up to which the confusion matrix is shown cell by cell."""

_STRONGEST = 50
"""Percent of colour in a cell: text stays readable on it."""


class Section(NamedTuple):
    """A part of the page; ``id`` is also its template's name."""

    id: str
    title: str


class Mark(NamedTuple):
    """A place on the scale of accuracy."""

    at: float
    text: str
    side: str


class Cell(NamedTuple):
    """Of the confusion matrix."""

    examples: int
    colour: str
    strength: int
    """Percent."""


class Row(NamedTuple):
    """A replica's devices."""

    name: str
    devices: list[str]


def render(facts: Facts) -> str:
    """The page."""
    context: dict[str, Any] = {"facts": facts, "version": wording.version(), "css": _css()}
    context |= {"tiles": wording.tiles(facts), "marks": _marks(facts.quality)}
    context |= {"broke": wording.broke(facts), "unrecorded": wording.unrecorded(facts)}
    sections = []
    if facts.training:
        sections.append(Section("learning", "How it learned"))
        context |= _learning(facts)
    if facts.quality:
        sections.append(Section("quality", "Where it is right"))
        context["compared"] = wording.compared(facts.quality)
        context |= _quality(facts.quality)
        if facts.quality.mistakes:
            sections.append(Section("mistakes", "Surest mistakes"))
    if facts.data:
        sections.append(Section("data", "The data"))
        context |= {"read": wording.data_text(facts), "few": len(facts.class_names) <= _MATRIX}
    if facts.training:
        sections.append(Section("topology", "The devices"))
        context |= _topology(facts)
    if facts.parity:
        sections.append(Section("parity", "Parity"))
    if facts.components:
        sections.append(Section("pipeline", "The pipeline"))
        context |= _pipeline(facts)
    if facts.lineage:
        sections.append(Section("lineage", "Lineage"))
    if facts.lineage or facts.settings or facts.command:
        sections.append(Section("reproduce", "Do it again"))
        context |= _reproduce(facts)
    return environment().get_template("page.html.j2").render(sections=sections, **context)


@functools.cache
def environment() -> jinja2.Environment:
    """Finds the templates; what they are given is escaped, but for charts."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("stagecraft.components.report.pages"),
        autoescape=jinja2.select_autoescape(("html.j2",), default_for_string=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "percent": wording.percent,
        "number": wording.number,
        "bytes": wording.size,
        "duration": wording.duration,
        "png": _png,
    }
    return found


def _css() -> Markup:
    loader = environment().loader
    assert loader is not None
    return Markup(loader.get_source(environment(), "page.css")[0])


def _png(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def _safe(chart: Chart | None) -> dict[str, Any] | None:
    return None if chart is None else {"title": chart.title, "svg": Markup(chart.svg)}


def _marks(quality: Quality | None) -> list[Mark]:
    """What the accuracy has to measure up to."""
    if quality is None:
        return []
    found = []
    if quality.min_accuracy:
        found.append((quality.min_accuracy, f"required {wording.percent(quality.min_accuracy)}"))
    if quality.baseline is not None:
        found.append((quality.baseline, f"last blessed {wording.percent(quality.baseline)}"))
    return [Mark(at, text, _side(at)) for at, text in found]


def _side(at: float) -> str:
    """Where a mark's text has room."""
    return "first" if at < 0.2 else "last" if at > 0.8 else ""


def _learning(facts: Facts) -> dict[str, Any]:
    assert facts.training
    return {
        "learned": wording.learned(facts.training),
        "curves": [_safe(chart) for chart in charts.curves(facts.training)],
    }


def _quality(quality: Quality) -> dict[str, Any]:
    error = quality.metrics.get("expected_calibration_error")
    return {
        "confused": wording.confused(quality),
        "matrix": _matrix(quality.confusion) if len(quality.confusion) <= _MATRIX else None,
        "pairs": wording.pairs(quality),
        "calibration": _safe(charts.calibration(quality.calibration, error)),
        "calibrated": wording.calibrated(quality) if quality.calibration else "",
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


def _topology(facts: Facts) -> dict[str, Any]:
    assert facts.training
    record, seen = facts.training.record, facts.training.timeline
    devices, stages = record["topology"]["devices"], record["topology"]["stages"]
    rows = [devices[first : first + stages] for first in range(0, len(devices), stages)]
    several = record["topology"]["workers"] > 1
    replicas = [
        Row(f"{number}{' of each process' if several else ''}", row)
        for number, row in enumerate(rows)
    ]
    plan = record["plan"]
    return {
        "topology": wording.topology(record),
        "replicas": replicas if len(devices) > 1 else [],
        "shares": seen["shares"] if seen else None,
        "measured": _safe(step_timeline.measured(seen)) if seen else None,
        "planned": _safe(step_timeline.planned(plan)) if plan and seen else None,
        "unwatched": wording.unwatched(record, facts.command),
        "waited": wording.waited(facts.training) if seen else "",
    }


def _pipeline(facts: Facts) -> dict[str, Any]:
    length = max(each.begin + each.seconds for each in facts.components)
    cached = sum(each.state == "cached" for each in facts.components)
    took = f"{wording.duration(length)} from the first component to the last."
    if cached:
        took += f" {cached} of {len(facts.components)} had nothing to do: nothing had changed."
    return {"length": length or 1.0, "took": took}


def _reproduce(facts: Facts) -> dict[str, Any]:
    code = [
        item.properties["code_fingerprint"]
        for item in facts.lineage
        if "code_fingerprint" in item.properties
    ]
    return {
        "options": wording.options(facts.training) if facts.training else [],
        "fingerprint": facts.data.fingerprint if facts.data else "",
        "code": code[0] if code else "",
    }
