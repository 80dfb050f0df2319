"""Text that a terminal shows and does not obey."""

from __future__ import annotations

import pytest

from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.text import plain, visible


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("exe\u202egpj.txt", r"exe\u202egpj.txt"),
        ("a\u200bb\ufeff\xad", r"a\u200bb\ufeff\xad"),
        ("a\u2028b\x85", r"a\u2028b\x85"),
        (b"bad\xff.bin".decode(errors="surrogateescape"), r"bad\udcff.bin"),
        ("\U0001f468\u200d\U0001f469 می\u200cخواهم",) * 2,
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown
    shown.encode()


def test_visible_lines() -> None:
    assert visible("a\n\tb\r\x00", lines=True) == "a\n\tb\\r\\x00"


def test_errors_show_what_cannot_be_seen() -> None:
    error = SettingError("train.frozen", "a\nb\x1b[2J", "matches nothing", "head")
    assert str(error).startswith(r"train.frozen: a\nb\x1b[2J matches nothing")
    assert error.value == "a\nb\x1b[2J"
    assert "\x1b" not in str(UserError("of a file \x1b[31m"))
