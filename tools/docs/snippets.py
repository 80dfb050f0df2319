"""The snippets of a page, and which of their commands nobody has run; a note says it below them.

The page on what is untested has a table of them: how a command line begins, and what it needs.
Every other command in a block of ``sh`` is run by a test.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNTESTED = ROOT / "docs" / "untested.md"

_FENCE = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_BLOCK = re.compile(r"^```sh\n.*?^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(?P<start>[^`]+)` \| (?P<needs>[^|]+) \|$", re.MULTILINE)
_HEADING = "\n## Commands that no test runs\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Says below a snippet what it needs, where no test runs it."""
    rows = untested()

    def noted(match: re.Match[str]) -> str:
        (snippet,) = snippets(match[0])
        lacking = dict.fromkeys(filter(None, (needs(line, rows) for line in snippet.commands)))
        note = f"\n\n*Untested here: needs {', '.join(lacking)}.*" if lacking else ""
        return match[0] + note

    return _BLOCK.sub(noted, markdown)


class Snippet(NamedTuple):
    """A fenced block."""

    language: str
    title: str
    """Name of the file that it is; empty where it is none."""
    text: str

    @property
    def commands(self) -> list[str]:
        """Its lines; those that a backslash continues are one."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


def snippets(markdown: str) -> list[Snippet]:
    """All fenced blocks, in order."""
    return [
        Snippet(found["language"], found["title"] or "", found["text"])
        for found in _FENCE.finditer(markdown)
    ]


def untested() -> dict[str, str]:
    """Beginning of a command line -> what it needs, from the page's table."""
    return dict(_ROW.findall(UNTESTED.read_text().partition(_HEADING)[2]))


def needs(command: str, rows: dict[str, str]) -> str:
    """What a command needs that tests do not have; empty where they run it."""
    words = command.split()
    return next(
        (what for start, what in rows.items() if words[: len(start.split())] == start.split()), ""
    )
