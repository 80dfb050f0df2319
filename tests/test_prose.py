"""Prose is in ``test_messages.py`` alone: a test asserts types, fields and short tokens."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
_PHRASE = re.compile(r"[A-Za-z’']+(?:[ ,;:.]+(?:\\ )?[A-Za-z’']+){3,}")
"""Four words and more."""


def _text(node: ast.AST) -> str:
    """The constant text of an expression, f-strings and concatenations included."""
    return " ".join(
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each assertion on prose: ``match=``, and ``in`` or ``==`` in an assert."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "pytest.raises",
            "pytest.warns",
        ):
            found = [keyword.value for keyword in node.keywords if keyword.arg == "match"]
        elif isinstance(node, ast.Assert):
            found = [
                operand
                for compare in ast.walk(node.test)
                if isinstance(compare, ast.Compare) and isinstance(compare.ops[0], (ast.In, ast.Eq))
                for operand in (compare.left, *compare.comparators)
                if isinstance(operand, (ast.Constant, ast.JoinedStr))
            ]
        else:
            continue
        for each in found:
            if phrase := _PHRASE.search(_text(each)):
                yield node.lineno, phrase.group()


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("with pytest.raises(ValueError, match='use a smaller batch size'): pass", 1),
        ("assert 'use a smaller batch size' in text", 1),
        ("assert f'{x} is a batch size that' == text", 1),
        ("with pytest.raises(ValueError, match='batch_size'): pass", 0),
        ("assert error.value.setting == 'train.batch_size'", 0),
    ],
)
def test_prose_is_seen_and_fields_are_allowed(source: str, count: int) -> None:
    assert len(list(prose(source))) == count


def test_nobody_greps_for_a_sentence() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}: {phrase}"
        for file in sorted(TESTS.rglob("test_*.py"))
        if file.name not in (pathlib.Path(__file__).name, "test_messages.py")
        for line, phrase in prose(file.read_text())
    ]
    assert not found, "\n".join(found)
