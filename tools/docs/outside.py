"""Brings files of the repository that are not in docs/ into the site, and mends links to them.

On disk, and in a browser of repositories, ``../../manifests/README.md`` leads to the file; in the
site, the same link leads to the page that shows it.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

PAGES = {
    "manifests/README.md": "reference/manifests.md",
    "benchmarks/RESULTS.md": "reference/results.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
}
"""File of the repository -> page of the site."""

LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")


def on_files(files: Any, config: Any) -> None:
    """Adds the pages."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Points links at pages of the site."""
    source = page.file.src_uri
    home = next((path for path, shown in PAGES.items() if shown == source), f"docs/{source}")
    return LINK.sub(lambda match: _target(match[1], home, source), markdown)


def _target(link: str, home: str, source: str) -> str:
    path = os.path.normpath(os.path.join(os.path.dirname(home), link))
    inside = path.startswith("docs/")
    shown = path.removeprefix("docs/") if inside else PAGES.get(path)
    if shown is None:
        raise PluginError(
            f"{home}: a link to {link}, which is not in the site; name it without a link, or add "
            f"it to PAGES in {pathlib.Path(__file__).relative_to(ROOT)}"
        )
    return os.path.relpath(shown, os.path.dirname(source) or ".")
