"""A report in Markdown: the summary that KFP shows, and the model card for people."""

from __future__ import annotations

import functools
from typing import Any

import jinja2

from stagecraft.components.report.pages import formats, quality_text, training_text
from stagecraft.components.report.report_data import ReportData


def summary(report: ReportData) -> str:
    """A few lines and tables."""
    return _render("summary.md.j2", report=report, tiles=training_text.tiles(report))


def card(report: ReportData, card: dict[str, Any]) -> str:
    """The model card; ``card`` is the same as JSON."""
    return _render("card.md.j2", report=report, card=card)


def _render(template: str, **context: Any) -> str:
    modules = {"quality_text": quality_text, "training_text": training_text}
    return _environment().get_template(template).render(**modules, **context)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stagecraft.components.report.pages"),
        autoescape=False,  # the result is not HTML; the filter cell escapes Markdown
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": formats.percent,
        "number": formats.number,
        "cell": _cell,
    }
    return environment


def _cell(value: object) -> str:
    """Text of one table cell, with Markdown's special characters escaped."""
    text = " ".join(str(value).split())
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return text
