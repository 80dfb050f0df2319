"""The facts in Markdown: the summary that KFP shows, and the model card for people."""

from __future__ import annotations

import functools
from typing import Any

import jinja2

from stagecraft.components.report.facts import Facts
from stagecraft.components.report.pages import wording


def summary(facts: Facts) -> str:
    """A few lines and tables."""
    return _render("summary.md.j2", facts=facts, tiles=wording.tiles(facts))


def card(facts: Facts, card: dict[str, Any]) -> str:
    """The model card; ``card`` is the same as JSON."""
    return _render("card.md.j2", facts=facts, card=card)


def _render(template: str, **context: Any) -> str:
    return _environment().get_template(template).render(wording=wording, **context)


@functools.cache
def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("stagecraft.components.report"),
        autoescape=False,  # it is not HTML; see the filter cell
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "percent": wording.percent,
        "number": wording.number,
        "cell": _cell,
    }
    return found


def _cell(value: object) -> str:
    """Text that stays in its cell, and means nothing in Markdown."""
    text = " ".join(str(value).split())
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return text
