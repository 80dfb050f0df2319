"""Says below a snippet what it needs, where no test runs it."""

from __future__ import annotations

import re
from typing import Any

from snippets import needs, snippets, untested

_BLOCK = re.compile(r"^```sh\n.*?^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Adds the notes."""
    rows = untested()

    def noted(match: re.Match[str]) -> str:
        (snippet,) = snippets(match[0])
        lacking = dict.fromkeys(filter(None, (needs(line, rows) for line in snippet.commands)))
        note = f"\n\n*Untested here: needs {', '.join(lacking)}.*" if lacking else ""
        return match[0] + note

    return _BLOCK.sub(noted, markdown)
