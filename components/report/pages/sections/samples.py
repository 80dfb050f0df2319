"""Answers of the exported model to some inputs: ``Task.samples``."""

from __future__ import annotations

from stagecraft.components.report.pages.sections.content import Content, Table
from stagecraft.components.report.report_data import ReportData

TITLE = "Samples"


def show(report: ReportData) -> Content | None:
    """A table of inputs and outputs."""
    if report.training is None or not report.training.samples:
        return None
    rows = list(report.training.samples.items())
    table = Table("Inputs and outputs", ("Input", "Output"), rows, is_number=False)
    return Content("Computed by the model with the exported weights.", tables=[table])
