"""Tables, sizes, times and foreign text, for terminals and JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, …
    r"|\x1b[ -/]*[0-~]"
)
"""Control sequences of ECMA-48 (ISO 6429), in 7-bit and 8-bit forms, with their contents."""

_NEW_LINE = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")

_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 except tab and newline, and characters that change the text direction."""

_SURROGATES = re.compile(r"[\ud800-\udfff]")  # bytes of a file name that are not UTF-8 (PEP 383)


def plain(text: str) -> str:
    """Text without escape sequences and control characters, and with ``\\n`` as line ends."""
    text = _NEW_LINE.sub("\n", _ESCAPES.sub("", text))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


_INVISIBLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls, line ends, characters without width, marks of direction, halves of characters."""


def visible(text: str, *, lines: bool = False) -> str:
    """Text with escapes in place of characters that a reader cannot see: ``a\\nb`` on one line.

    Unlike :func:`plain`, two different texts stay different.

    Args:
        lines: whether line feeds and tabs stay as they are.
    """

    def escaped(found: re.Match[str]) -> str:
        return found[0] if lines and found[0] in "\n\t" else ascii(found[0])[1:-1]

    return _INVISIBLE.sub(escaped, text)


def columns(lines: Sequence[Sequence[str]], left: Collection[int] | None = None) -> str:
    """A table of lines with equally many cells.

    Args:
        left: numbers of the columns of texts; the others have numbers, at the right. None: all.
    """
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if left is None or number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def size(count: float) -> str:
    """A number of bytes: ``1.2 MB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def duration(seconds: float, *, tenths: bool = False) -> str:
    """``12 s``, ``3 min 20 s`` or ``1 h 5 min``; ``tenths``: below ten seconds, ``1.2 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if tenths and seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
