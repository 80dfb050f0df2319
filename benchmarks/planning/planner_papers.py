"""Compares the planner's cost model with measurements that papers publish.

    python benchmarks/planning/planner_papers.py [--markdown | --efficiency]
    python benchmarks/planning/planner_papers.py [--assumptions | --mechanisms]

papers/*.yaml hold the published figures with their sources. Every prediction uses the published
rates of the accelerator and its links, and one efficiency for each kind of accelerator. Rows with
an asterisk calibrate these efficiencies, and count in no error.

--markdown prints the tables of docs/reference/planner-accuracy.md. --efficiency prints the
efficiency with which each calibrating row is exact. --assumptions changes each assumed constant,
calibrates again, and prints the errors. --mechanisms does so with other mechanisms, by table.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from papers import calibration
from papers.published import Table, tables

from common import figures

LARGE = 0.15
"""Errors that need a cause."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--efficiency", action="store_true")
    parser.add_argument("--assumptions", action="store_true")
    parser.add_argument("--mechanisms", action="store_true")
    args = parser.parse_args()
    found = tables()
    if args.efficiency:
        for table in found:
            for row in table.rows:
                if row.calibrates:
                    share = calibration.efficiency(row)
                    print(f"{row.accelerator:10} {table.paper} {row.row}: {share:.3f}")
        return
    if args.assumptions:
        for name, change in calibration.CHANGES.items():
            again = calibration.calibrated(found, change)
            print(f"{name:32} {summary(found, [table.predictions(again) for table in found])}")
        return
    if args.mechanisms:
        print("\n".join(mechanisms(found)))
        return
    predicted = [table.predictions() for table in found]
    for table, values in zip(found, predicted, strict=True):
        print("\n".join(markdown(table, values) if args.markdown else plain(table, values)))
    print(summary(found, predicted))
    if not args.markdown:
        absolute = sizes(found, predicted)
        figures(
            lower={
                "median error, %": 100 * statistics.median(absolute),
                "largest error, %": 100 * max(absolute),
            }
        )


def mechanisms(found: Sequence[Table]) -> list[str]:
    """Errors of all rows with other mechanisms; then of each table without, with, and with XLA."""
    lines = []
    by_table: dict[str, list[str]] = {f"{each.paper}, {each.table}": [] for each in found}
    for name, fields in calibration.MECHANISMS.items():
        tables_then = calibration.with_fields(found, fields)
        again = calibration.calibrated(tables_then, calibration.CHANGES["as assumed"])
        predicted = [table.predictions(again) for table in tables_then]
        lines.append(f"{name:40} {summary(tables_then, predicted)}")
        if "activations" in fields:
            continue
        for texts, table, values in zip(by_table.values(), found, predicted, strict=True):
            absolute = sizes([table], [values])
            texts.append(f"{statistics.median(absolute):.1%} ({max(absolute):.1%})")
    return [*lines, "", *(f"{name}: {'; '.join(texts)}" for name, texts in by_table.items())]


def errors(table: Table, values: Sequence[float]) -> list[float | None]:
    """Relative errors; None: the row calibrates, or normalizes the others."""
    result: list[float | None] = []
    for index, (row, value) in enumerate(zip(table.rows, values, strict=True)):
        given = row.calibrates or (row.unit == "normalized" and index == 0)
        result.append(None if given else value / row.published - 1)
    return result


def cells(table: Table, values: Sequence[float]) -> list[tuple[str, str, str, str]]:
    """Row, published, predicted, error."""
    result = []
    for row, value, error in zip(table.rows, values, errors(table, values), strict=True):
        digits = 2 if row.unit == "normalized" else 1 if row.published < 1000 else 0
        result.append(
            (
                row.row + (" *" if row.calibrates else ""),
                f"{row.published:,.{digits}f}",
                f"{value:,.{digits}f}",
                "" if error is None else f"{error:+.1%}",
            )
        )
    return result


def plain(table: Table, values: Sequence[float]) -> list[str]:
    lines = [f"{table.paper}, {table.table} ({table.rows[0].unit})"]
    lines += [f"  {a:16} {b:>10} {c:>10} {d:>8}" for a, b, c, d in cells(table, values)]
    return [*lines, *(f"  {line}" for line in causes(table, values)), ""]


def markdown(table: Table, values: Sequence[float]) -> list[str]:
    unit = table.rows[0].unit
    lines = [f"### {table.paper}: {table.table}", "", f"Read in {table.read}. Unit: {unit}.", ""]
    lines += ["| row | published | predicted | error |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(each) + " |" for each in cells(table, values)]
    wrong = causes(table, values)
    return [*lines, "", *(f"* {line}" for line in wrong), *([""] if wrong else [])]


def causes(table: Table, values: Sequence[float]) -> list[str]:
    """A sentence for each large error."""
    found = []
    for row, error in zip(table.rows, errors(table, values), strict=True):
        if error is not None and abs(error) > LARGE:
            found.append(f"{row.row}: {row.because or 'not explained.'}")
    return found


def sizes(found: Sequence[Table], predicted: Sequence[Sequence[float]]) -> list[float]:
    """Absolute errors of the rows that count."""
    return [
        abs(error)
        for table, values in zip(found, predicted, strict=True)
        for error in errors(table, values)
        if error is not None
    ]


def summary(found: Sequence[Table], predicted: Sequence[Sequence[float]]) -> str:
    counted = sizes(found, predicted)
    large = sum(size > LARGE for size in counted)
    return (
        f"{len(counted)} predictions: median error {statistics.median(counted):.1%}, "
        f"largest {max(counted):.1%}, {large} above {LARGE:.0%}"
    )


if __name__ == "__main__":
    main()
