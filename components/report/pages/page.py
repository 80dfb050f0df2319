"""A report for people: an HTML page with all its resources inside, a summary, the model card."""

from __future__ import annotations

import base64
import functools
import shlex
from collections.abc import Iterator
from typing import Any

import jinja2
from markupsafe import Markup

import stagecraft
from stagecraft.common.text import duration, size, visible
from stagecraft.components.evaluator.evaluation import MIN
from stagecraft.components.report.pages import charts, formats, sections, sentences
from stagecraft.components.report.report_data import Quality, ReportData, Training

_MATRIX = 20  # most classes of a confusion matrix that the page shows as a table
_STRONGEST = 50  # most percent of colour in a cell; text stays readable on it
_OF_TASK = "(of the task)"
_SECTIONS = {
    "training": "Training",
    "quality": "Per-class quality",
    "mistakes": "Most confident errors",
    _OF_TASK: "",
    "data": "Data",
    "topology": "Topology",
    "parity": "Parity",
    "pipeline": "Pipeline",
    "lineage": "Lineage",
    "reproduce": "Reproduce this run",
}
"""Name of a section's template -> title. The task's sections stand at ``_OF_TASK``."""


def render(report: ReportData) -> str:
    """The page."""
    quality, training = report.quality, report.training
    present = {
        "training": training,
        "quality": quality and quality.classes,
        "mistakes": quality and quality.mistakes,
        "data": report.data,
        "topology": training,
        "parity": report.parity,
        "pipeline": report.components,
        "lineage": report.lineage,
        "reproduce": report.lineage or report.settings or report.command,
    }
    loader = _environment().loader
    assert loader is not None
    context: dict[str, Any] = {
        "sections": list(_sections(report, present)),
        "css": Markup(loader.get_source(_environment(), "page.css")[0]),
        "marks": list(_marks(quality)) if quality else [],
        "few": 0 < len(report.class_names) <= _MATRIX,
    }
    if training:
        context |= {"curves": charts.curves(training, report.task.noun)} | _topology(training)
    if quality:
        error = quality.metrics.get("expected_calibration_error")
        context["calibration"] = charts.calibration(quality.calibration, error)
        small = len(quality.confusion) <= _MATRIX
        context["matrix"] = _matrix(quality.confusion) if small else None
    if report.components:
        context |= _pipeline(report)
    return _render("page.html.j2", report, **context)


def _sections(report: ReportData, present: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Id, title and, for a section of ``sections.py``, content; in the order of the page."""
    for key, title in _SECTIONS.items():
        if key == _OF_TASK:
            for name, task_title, content in sections.of(report):
                yield {"id": name, "title": task_title, "content": content}
        elif present[key]:
            yield {"id": key, "title": title, "content": None}


def summary(report: ReportData) -> str:
    """A few lines and tables in Markdown."""
    return _render("summary.md.j2", report) + "\n"


def card(report: ReportData, card: dict[str, Any]) -> str:
    """The model card in Markdown; ``card`` is the same as JSON."""
    return _render("card.md.j2", report, card=card) + "\n"


def _render(template: str, report: ReportData, **context: Any) -> str:
    return (
        _environment()
        .get_template(template)
        .render(
            report=report,
            tiles=sentences.tiles(report),
            version=stagecraft.__version__,
            sentences=sentences,
            **context,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    """Loads the templates. Those of HTML escape all values except charts."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stagecraft.components.report.pages"),
        autoescape=jinja2.select_autoescape(("html.j2",), default_for_string=False),
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value, lines=True) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": formats.percent,
        "metric": lambda value, name: formats.metric(name, value),
        "title_of": formats.title,
        "number": formats.number,
        "bytes": size,
        "duration": functools.partial(duration, tenths=True),
        "png": lambda image: "data:image/png;base64," + base64.b64encode(image).decode(),
        "cell": _cell,
        "quoted": shlex.quote,
    }
    return environment


def _cell(value: object) -> str:
    text = visible(" ".join(str(value).split()))
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return text


def _marks(quality: Quality) -> Iterator[dict[str, Any]]:
    """The accuracies that the model is compared with; ``side`` has room for the text."""
    least = quality.thresholds.get(quality.monitor, {}).get(MIN)
    for at, name in ((least, "required"), (quality.baseline, "last blessed")):
        if at is not None and (at or name != "required"):
            side = "first" if at < 0.2 else "last" if at > 0.8 else ""
            yield {"at": at, "text": f"{name} {formats.percent(at)}", "side": side}


def _matrix(confusion: list[list[int]]) -> list[list[dict[str, Any]]]:
    wrong = [
        count
        for actual, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        if actual != predicted
    ]
    worst = max(wrong, default=0) or 1

    def cell(count: int, most: int, colour: str) -> dict[str, Any]:
        return {"examples": count, "colour": colour, "strength": round(_STRONGEST * count / most)}

    return [
        [
            cell(count, sum(row) or 1, "green") if actual == label else cell(count, worst, "red")
            for label, count in enumerate(row)
        ]
        for actual, row in enumerate(confusion)
    ]


def _topology(training: Training) -> dict[str, Any]:
    record, timeline, plan = training.record, training.timeline, training.record["plan"]
    devices, stages = record["topology"]["devices"], record["topology"]["stages"]
    shards = record["topology"].get("shards", 1)
    each = stages * shards
    suffix = " of each process" if record["topology"]["workers"] > 1 else ""
    replicas = [
        {"name": f"{number}{suffix}", "devices": devices[first : first + each]}
        for number, first in enumerate(range(0, len(devices), each))
    ]
    columns = [
        f"Stage {stage}" + (f", shard {shard}" if shards > 1 else "")
        for stage in range(stages)
        for shard in range(shards)
    ]
    return {
        "columns": columns if each > 1 else ["Device"],
        "replicas": replicas if len(devices) > 1 else [],
        "shares": timeline["shares"] if timeline else None,
        "measured": charts.measured_step(timeline) if timeline else None,
        "planned": charts.planned_step(plan) if plan and timeline else None,
    }


def _pipeline(report: ReportData) -> dict[str, Any]:
    length = max(each.begin + each.seconds for each in report.components)
    cached = sum(each.state == "cached" for each in report.components)
    text = f"{duration(length, tenths=True)} from the first component to the last."
    if cached:
        text += f" {cached} of {len(report.components)} components came from the cache."
    return {"length": length or 1.0, "pipeline_text": text}
