"""The site builds without a warning, asks nobody for anything, and has what the code says."""

from __future__ import annotations

import pathlib
import re
import sys

import pictures
import pytest
from processes import ran
from snippets import ROOT

from stagecraft.pipeline.cli.describe_settings import described


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("site")
    command = ("mkdocs", "build", "--strict", "--quiet", "--site-dir", folder)
    variables = {"NO_MKDOCS_2_WARNING": "1"}
    ran(sys.executable, "-m", *command, cwd=ROOT, variables=variables)
    return folder


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: pathlib.Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//"
        r"|<link\b[^>]*rel=\"?(?:stylesheet|preconnect|preload|icon)[^>]*href=\"(?:https?:)?//"
        r"|(?:@import|url\()\s*[\"']?(?:https?:)?//|class=\"mermaid\"|data-md-component=\"source\""
    )
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 30
    for page in pages:
        found = loads.search(page.read_text())
        assert not found, f"{page}: {found and found[0]}"


@pytest.mark.slow
def test_reference_is_made_from_the_code(site: pathlib.Path) -> None:
    settings = (site / "reference" / "settings.html").read_text()
    assert all(f"<code>{setting.name}</code>" in settings for setting in described())
    assert "kubeflow runs logs" in (site / "reference" / "commands.html").read_text()
    components = (site / "reference" / "components.html").read_text()
    assert "checkpoint_root" in components and "outlives a failed" in components


@pytest.mark.slow
def test_what_is_untested_has_a_note(site: pathlib.Path) -> None:
    page = (site / "how-to" / "beam.html").read_text()
    assert page.partition("Untested here")[2].startswith(": needs Flink.")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_drawn_from_the_present_numbers(name: str) -> None:
    drawn = pictures.PICTURES[name]()
    kept = (pictures.IMAGES / f"{name}.svg").read_text()
    assert kept == drawn, "run: python tools/docs/pictures.py"


def test_every_page_has_a_picture_that_is_there() -> None:
    shown = {
        target
        for page in (ROOT / "docs").rglob("*.md")
        for target in re.findall(r"images/([\w-]+)\.svg", page.read_text())
    }
    assert shown == set(pictures.PICTURES)
