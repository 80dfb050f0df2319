"""The only module that prints text; removes escape sequences, control characters and secrets.

Documents, such as manifests, are the exception: they keep their secrets.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from stagecraft.common import secrets
from stagecraft.common.text import plain

_INDENT = "    "


def say(text: str, *, stderr: bool = False) -> None:
    """Prints a paragraph, or lines."""
    print(shown(text), file=sys.stderr if stderr else sys.stdout, flush=True)


def document(text: str) -> None:
    """Prints a document for another program, with the secrets that it may need."""
    print(plain(text), flush=True)


def error(text: str) -> None:
    """Prints an error on stderr."""
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {shown(text)}", err=True)


def warning(text: str) -> None:
    """Prints a warning on stderr."""
    click.echo(f"{click.style('Warning:', fg='yellow', bold=True)} {shown(text)}", err=True)


def say_json(value: dict[str, Any]) -> None:
    """Prints one object on one line; NaN and infinities, which JSON lacks, become null."""
    print(json.dumps(_of_json(value), allow_nan=False), flush=True)


def fields(lines: list[tuple[str, str]], *, stderr: bool = False) -> None:
    """Prints names and values in two columns; long values, such as paths, stay whole."""
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        say(f"{name:<{width}}  {value}", stderr=stderr)


def table(
    header: tuple[str, ...], lines: Sequence[tuple[str, ...]], *, folded: bool = False
) -> None:
    """Prints a table, each column as wide as its longest cell."""
    from rich.cells import cell_len, set_cell_size  # Chinese characters are two cells wide

    folded = folded and sys.stdout.isatty()
    rows = [tuple(map(cell, line)) for line in (header, *lines)]
    columns = [row[:-1] if folded else row for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*columns, strict=True)]
    for cells, row in zip(columns, rows, strict=True):
        padded = (set_cell_size(text, width) for text, width in zip(cells, widths, strict=True))
        say("  ".join(padded).rstrip())
        if folded and row[-1]:
            width = max(shutil.get_terminal_size().columns, 40) - len(_INDENT)
            text = textwrap.fill(row[-1], width, break_long_words=False, break_on_hyphens=False)
            say(textwrap.indent(text, _INDENT))


def shown(text: str) -> str:
    """Foreign text, plain and without secrets."""
    return secrets.redact(plain(text))


def cell(text: str) -> str:
    """Foreign text, shown on one line."""
    return " ".join(shown(text).split("\n"))


def _of_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {plain(str(key)): _of_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_of_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return shown(value) if isinstance(value, str) else value
