"""Sanitizes foreign text, such as names in an archive, for terminals and JSON."""

from __future__ import annotations

import re

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
