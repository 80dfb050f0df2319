"""Rows of CSV files as people have them.

UTF-8 with or without a byte order mark; compressed with gzip or not; separated by commas,
semicolons, tabs or bars, whichever gives the header most columns. Imports nothing heavy.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.data.tasks.mismatches import is_number

DELIMITERS = (",", ";", "\t", "|")

MISSING = frozenset(("", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "?", "-"))
"""Cells without a value, in a column whose other cells are numbers. In a column of texts, all but
the empty cell are texts."""

_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"PK\x03\x04": (
        "a ZIP archive or an Excel file",
        "CSV: export the table, or unpack the archive",
    ),
    b"PAR1": ("Parquet", "data.example_gen: stagecraft.components.ParquetExampleGen"),
    b"Obj\x01": ("Avro", "data.example_gen: stagecraft.components.AvroExampleGen"),
}
"""First bytes -> the kind of a file, and what works."""

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_LONGEST_HEADER = 100
"""Lines."""

csv.field_size_limit(1 << 27)  # of the whole process


class Rows(NamedTuple):
    """The header of a file, and its rows."""

    names: list[str]
    """Of the columns; empty for a column that is no feature, such as the index of pandas."""

    cells: Iterator[list[str]]
    """Of each row, as many as names; without empty lines."""


def read(stream: IO[bytes], path: str) -> Rows:
    """Reads a CSV file with a header.

    Args:
        path: for errors.

    Raises:
        UserError: the file is empty, no text in UTF-8, or no table.
    """
    magic = stream.read(4)
    stream.seek(0)
    if magic in _OTHERS:
        kind, use = _OTHERS[magic]
        raise _refused(path, f"is {kind}, not CSV", use, value=kind)
    if magic.startswith(_UTF_16):
        use = f"UTF-8: iconv -f UTF-16 -t UTF-8 {path}"
        raise _refused(path, "is UTF-16", use, value="UTF-16")
    if magic.startswith(_GZIP):
        stream = gzip.GzipFile(fileobj=stream)  # type: ignore[assignment]
    lines = _Lines(stream, path)
    first = next(lines, "")
    names, delimiter = _names(first, path)
    while _is_open(first, delimiter):  # a line break in a name
        more = next(lines, "")
        if not more or lines.number > _LONGEST_HEADER:
            raise _odd_quotes(path, 1)
        first += more
        names, delimiter = _names(first, path)
    if not first.strip():
        raise _refused(path, "has no header", "a first line with the names of the columns")
    return Rows(names, _rows(lines, delimiter, len(names), path))


def _names(header: str, path: str) -> tuple[list[str], str]:
    """The names in a header, and the delimiter that makes the most of them, or the first such."""
    if "\r" in header.replace("\r\n", ""):
        use = "line ends of Unix or Windows"
        raise _refused(path, "has a carriage return without a line feed in its header", use)
    found = {
        each: next(csv.reader(io.StringIO(header, newline=""), delimiter=each), [])
        for each in DELIMITERS
    }
    delimiter = max(found, key=lambda each: len(found[each]))
    return found[delimiter], delimiter


def _is_open(row: str, delimiter: str) -> bool:
    """Whether a cell of a row begins with a quote that nothing closes.

    A row of one line has such a cell only if its number of quotes is odd.
    """
    if row.count('"') % 2 == 0 and "\n" not in row[:-1]:
        return False
    try:
        list(csv.reader(io.StringIO(row, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return True
    return False


class _Lines:
    """The lines of a file as texts, and how many have been read."""

    def __init__(self, stream: IO[bytes], path: str):
        self._stream, self._path = stream, path
        self.number = 0
        self.row: list[str] = []
        """Lines of one row; its reader empties it."""

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        try:
            line = next(self._stream)
        except (EOFError, OSError) as error:  # of gzip
            use = "the whole file"
            raise _refused(self._path, f"ends too early ({error})", use) from error
        self.number += 1
        try:
            text = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            near = line[max(error.start - 20, 0) : error.end + 20].decode("latin-1").strip()
            raise _refused(
                self._path,
                f"has the bytes of {near!r} in line {self.number}, which are no UTF-8",
                f"UTF-8: iconv -f LATIN1 -t UTF-8 {self._path}",
                record=str(self.number),
                value=near,
            ) from None
        if "\0" in text:  # some versions of Python refuse it
            problem = f"has a null byte in line {self.number}"
            raise _refused(self._path, problem, "a text file", record=str(self.number))
        self.row.append(text)
        return text


def _rows(lines: _Lines, delimiter: str, width: int, path: str) -> Iterator[list[str]]:
    reader, begin = csv.reader(lines, delimiter=delimiter), lines.number + 1
    lines.row.clear()
    try:
        while (row := next(reader, None)) is not None:
            if _is_open("".join(lines.row), delimiter):
                raise _odd_quotes(path, begin)
            if row and len(row) != width:
                use = "one cell for each name; put a cell with the separator between quotes"
                problem = f"has {len(row)} cells in line {begin}, but the header has {width} names"
                raise _refused(path, problem, use, record=str(begin), value=len(row))
            if row:
                yield row
            begin = lines.number + 1
            lines.row.clear()
    except csv.Error as error:
        if len(lines.row) > 1:
            raise _odd_quotes(path, begin) from error
        problem = f"cannot be read from line {begin} on: {error}"
        raise _refused(path, problem, "a CSV file", record=str(begin)) from error


def _odd_quotes(path: str, line: int) -> UserError:
    problem = f"has a cell in line {line} that begins with a quote, but does not end with one"
    return _refused(path, problem, 'two quotes ("") for each quote in a cell', record=str(line))


def _refused(
    path: str, problem: str, use: str, *, record: str = "", value: Any = None
) -> UserError:
    message = f"{path}: {problem}; use {use}"
    return UserError(message, file=path, record=record, value=value, suggestion=use)


def header(path: str) -> list[str]:
    """The names of the columns of a local file.

    Raises:
        UserError: it is no CSV file with a header and a row, or its first row does not fit.
    """
    with open(path, "rb") as stream:
        names, rows = read(stream, path)
        if all(map(is_number, names)):
            use = "a first line with the names of the columns"
            raise _refused(path, f"begins with the numbers {', '.join(names)[:60]}", use)
        if next(rows, None) is None:
            raise _refused(path, "has a header, but no rows", "a file with rows")
    return names
