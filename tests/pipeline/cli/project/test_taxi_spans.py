"""The section on spans in the README of a project of the template taxi."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from stagecraft.pipeline.cli.project import writing

SECTION = "## New data each month"
END = {"kind": "end", "status": "ok", "cause": None, "report": {}}


@pytest.fixture
def project(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A project whose settings have spans, as its README says."""
    folder = tmp_path / "trips"
    writing.write(folder, "taxi")
    settings = folder / "settings.yaml"
    text, count = re.subn(r"\n  (example_gen|source): .*", "", settings.read_text())
    assert count == 2
    before, line, after = text.partition('"New data each month" in README.md:\n')
    assert line
    commented = re.match(r"(  # [a-z_]+: .*\n)+", after)
    assert commented
    lines = "".join("  " + each.lstrip(" #") + "\n" for each in commented[0].splitlines())
    settings.write_text(before + line + lines + after[commented.end() :])
    monkeypatch.syspath_prepend(folder)
    return folder


def commands(project: pathlib.Path) -> list[list[str]]:
    section = (project / "README.md").read_text().partition(SECTION)[2]
    block = section.partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_its_commands_find_the_spans(project, stagecraft, monkeypatch):
    monkeypatch.chdir(project)
    (python, *script), (_, *run), (_, *watch) = commands(project)
    assert python == "python"
    subprocess.run([sys.executable, *script], cwd=project, check=True)
    assert len([*project.glob("data/span-*/trips.csv")]) == 3
    try:
        ran = stagecraft(*run, fake=[END])
        watched = stagecraft(*watch, "--every", "0.1", "--until", "3", fake=[END])
    finally:  # other projects have a package of this name
        for name in [name for name in sys.modules if name.partition(".")[0] == "models"]:
            del sys.modules[name]
    for result, months in ((ran, ["1", "2"]), (watched, ["1", "2", "3"])):
        assert result.code == 0, result.stderr
        lines = re.findall(r"^(\d): ", result.stdout, flags=re.MULTILINE)
        assert lines == months


@pytest.mark.slow
def test_its_months_are_read(project):
    words, (_, *run), _ = commands(project)
    subprocess.run([sys.executable, *words[1:]], cwd=project, check=True)
    command = [pathlib.Path(sys.executable).with_name("stagecraft"), *run, "--json"]
    completed = []
    for _ in range(2):
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        completed.append(["completed_by" in each for each in json.loads(done.stdout)["spans"]])
    assert completed == [[False, False], [True, True]], "the digests are those of the runs"
