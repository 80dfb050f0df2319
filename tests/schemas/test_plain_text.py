"""Text that a terminal shows and does not obey."""

from __future__ import annotations

import pytest

from stagecraft.schemas.plain_text import plain


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b2Jgone", "gone"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1;2q data\x1b\\x", "x"),
        ("\x1bc\x1b(0x", "x"),
        ("\x1b]0;never ends", ""),
        ("a\rb\r\nc", "a\nb\nc"),
        ("a\x0bb\x0cc\x85d\u2028e", "a\nb\nc\nd\ne"),
        ("a\x00\x07\x08\x7fb\x1b", "ab"),
        ("exe\u202egpj.txt", "exegpj.txt"),
        ("a\tb\nc", "a\tb\nc"),
        ("größer … ±3 ×2 \U0001f600", "größer … ±3 ×2 \U0001f600"),
        (b"bad\xff.bin".decode(errors="surrogateescape"), "bad\ufffd.bin"),
    ],
)
def test_plain(text: str, left: str) -> None:
    assert plain(text) == left
    assert plain(left) == left
    left.encode()
