"""Pages are read from top to bottom: their files are written, their commands given.

What a reader lacks here is in a table of the page on what is untested; nothing else is left out.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
from reading import OPTIONAL, PAGES, ROOT, Reader, commands, is_long, name, runs_something
from snippets import needs, snippets, untested

COMMANDS = [line for page in PAGES for line in commands(page)]


RARELY = (
    "README.md",
    "docs/explanation/parallelism.md",
    "docs/how-to/estimators.md",
    "docs/how-to/init.md",
    "docs/how-to/kubeflow.md",
    "docs/how-to/own-data.md",
    "docs/how-to/own-pipeline.md",
    "docs/how-to/resume.md",
    "docs/how-to/tasks.md",
    "docs/how-to/tf-config.md",
    "docs/reference/workers.md",
)
"""Pages whose commands train for minutes: read with all tests. CI gives the README's commands."""

ELSEWHERE = (
    "docs/how-to/continuous.md",
    "docs/how-to/own-task.md",
    "docs/how-to/serve.md",
    "docs/how-to/tune.md",
)
"""Pages with a test of their own, which looks at what the commands leave."""


def pages(long: bool) -> list[Any]:
    return [
        pytest.param(page, id=name(page), marks=[pytest.mark.full] * (name(page) in RARELY))
        for page in PAGES
        if runs_something(page) and is_long(page) is long and name(page) not in ELSEWHERE
    ]


@pytest.mark.parametrize("page", pages(long=False))
def test_what_it_says_works(page: pathlib.Path, reader: Reader) -> None:
    reader.read(page)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(long=True))
def test_what_it_trains_works(page: pathlib.Path, reader: Reader) -> None:
    if package := OPTIONAL.get(name(page)):
        pytest.importorskip(package, reason=f"the page needs {package}")
    reader.read(page)


def test_there_is_something_to_read() -> None:
    assert len(pages(long=False)) >= 4 and len(pages(long=True)) >= 8


@pytest.mark.parametrize("start", untested())
def test_what_is_untested_is_there(start: str) -> None:
    assert any(needs(line, {start: "it"}) for line in COMMANDS), "no page has it any more"


def test_make_is_what_ci_does() -> None:
    """The reader's own ``make`` only stands for it."""
    lines = [line for line in COMMANDS if line.startswith("make ") and not needs(line, untested())]
    given = {line.partition("#")[0].strip() for line in lines}
    assert given == {"make run", "make setup", "make test"}
    ci = (ROOT / ".ci" / "run").read_text()
    assert all(re.search(rf"^(step|begin \w+) {command}\b", ci, re.MULTILINE) for command in given)
    assert "stagecraft run --config quickstart $(ARGS)" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_in_fenced_blocks(page: pathlib.Path) -> None:
    """Else nobody would run them."""
    programs = ("docker", "export", "kubectl", "make", "pip", "python", "stagecraft", "tfx")
    lines = page.read_text().splitlines()
    loose = [line for line in lines if line.startswith(tuple(f"    {word} " for word in programs))]
    fenced = "\n".join(found.text for found in snippets(page.read_text()))
    assert [line for line in loose if line not in fenced] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind(page: pathlib.Path) -> None:
    """Shell and Python are run, YAML and JSON checked (test_pages); text and yml are shown."""
    kinds = {found.language for found in snippets(page.read_text())}
    assert kinds <= {"sh", "python", "yaml", "json", "text", "yml"}
    assert page.read_text().count("```") == 2 * len(snippets(page.read_text()))
