"""The content of a section of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.components.report.pages.charts import Chart


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
