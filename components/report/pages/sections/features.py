"""Statistics of each feature, for tables: ``StatisticsGen``'s."""

from __future__ import annotations

from stagecraft.components.report.pages import formats
from stagecraft.components.report.pages.sections.content import Content, Table
from stagecraft.components.report.report_data import FeatureStatistics, ReportData

TITLE = "Features"

_COLUMNS = ("mean", "std", "min", "median", "max")
_VALUES = 5
_NONE = "–"


def show(report: ReportData) -> Content | None:
    """A table of the features that are numbers, and one of those that are text."""
    if report.data is None or not report.data.features:
        return None
    numbers = [each for each in report.data.features if each.numbers]
    texts = [each for each in report.data.features if each.most_frequent]
    tables = []
    if numbers:
        header = ("Feature", "Split", "Values", "Missing", "Zeros", *map(str.capitalize, _COLUMNS))
        tables.append(Table("Numbers", header, [_number(each) for each in numbers]))
    if texts:
        header = ("Feature", "Split", "Values", "Missing", "Most frequent")
        tables.append(Table("Texts", header, [_text(each) for each in texts], is_number=False))
    return Content("Raw features, as StatisticsGen counted them.", tables=tables)


def _counts(each: FeatureStatistics) -> tuple[str, ...]:
    return each.feature, each.split, formats.number(each.count), formats.number(each.missing)


def _number(each: FeatureStatistics) -> tuple[str, ...]:
    shown = (f"{each.numbers[name]:,.4g}" if each.count else _NONE for name in _COLUMNS)
    return (*_counts(each), formats.number(each.numbers["zeros"]), *shown)


def _text(each: FeatureStatistics) -> tuple[str, ...]:
    frequent = list(each.most_frequent.items())[:_VALUES]
    shown = (f"{value} ({formats.number(count)})" for value, count in frequent)
    return (*_counts(each), ", ".join(shown))
