"""Tables for people, in plain text."""

from __future__ import annotations

from collections.abc import Sequence


def columns(lines: Sequence[Sequence[str]]) -> str:
    """A table of lines with equally many cells."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
