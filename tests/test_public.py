"""Docs, templates, notebooks and other packages use public names alone."""

from __future__ import annotations

import ast
import importlib
import json
import pathlib
import re
import sys
from collections.abc import Iterator

import pytest
from processes import ran
from repository import ROOT

from stagecraft.common.registry import Registry
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS
from stagecraft.pipeline.beam.runner import RUNNERS
from stagecraft.trainer_module import registries

FACES = (
    "stagecraft.components",
    "stagecraft.estimator",
    "stagecraft.extend",
    "stagecraft.pipeline",
    "stagecraft.tables",
    "stagecraft",
)
"""The last one is the package of the others."""

READ = ("README.md", "docs", "notebooks", "pipeline/cli/project/templates")
OTHERS = ("tests/other_package", "tests/other_project")

STARTED = {"stagecraft.trainer_module.worker"}
"""A module that docs start with ``python -m``."""

_NAME = re.compile(r"(?<![\w/.-])stagecraft(?:\.[A-Za-z_]\w*)+")
_IMPORT = re.compile(r"from (stagecraft[\w.]*) import (\([^)]*\)|[^(\n]+)")


def _files() -> Iterator[pathlib.Path]:
    for place in (ROOT / each for each in (*READ, *OTHERS)):
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        yield from (each for each in found if each.suffix in (".md", ".py", ".ipynb"))


def _text(file: pathlib.Path) -> str:
    if file.suffix != ".ipynb":
        return file.read_text()
    cells = json.loads(file.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def _groups() -> set[str]:
    """Groups of entry points, by which other packages register what they have."""
    found = [each for each in vars(registries).values() if isinstance(each, Registry)]
    return {each.group for each in (*found, RUNNERS, CLUSTER_JOBS)}


def private(text: str) -> Iterator[str]:
    """Names in a text, of modules or in modules, that no face has."""
    names = _NAME.findall(text)
    for module, listed in _IMPORT.findall(text):
        line = ast.parse(f"from {module} import {listed.strip()}").body[0]
        assert isinstance(line, ast.ImportFrom)
        names += [f"{module}.{each.name}" for each in line.names]
    for name in names:
        face = next(each for each in FACES if f"{name}.".startswith(f"{each}."))
        first = name.removeprefix(face).removeprefix(".").partition(".")[0]
        if first and first not in importlib.import_module(face).__all__ and name not in STARTED:
            yield name


@pytest.mark.parametrize("file", [*_files()], ids=lambda file: str(file.relative_to(ROOT)))
def test_names_are_public(file: pathlib.Path) -> None:
    assert {*private(_text(file))} - _groups() == set()


@pytest.mark.parametrize("face", FACES)
def test_each_public_name_is_there(face: str) -> None:
    module = importlib.import_module(face)
    assert all(hasattr(module, name) for name in module.__all__)
    assert {*module.__all__} <= {*dir(module)}
    with pytest.raises(AttributeError, match="no attribute 'Trianer'"):
        module.Trianer  # noqa: B018


def test_they_import_nothing_heavy() -> None:
    code = (
        f"import sys, {', '.join(FACES)}; assert 'LocalRunner' in dir(stagecraft.pipeline); "
        "print({'tensorflow', 'tfx', 'apache_beam', 'keras'} & set(sys.modules))"
    )
    assert ran(sys.executable, "-c", code).stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from stagecraft.extend import Optimizer", []),
        ("from stagecraft.extend import (\n    Optimizer,\n    Nothing,\n)", ["Nothing"]),
        ("import stagecraft.common.errors", ["errors"]),
        ('run_fn="stagecraft.components.run_fn"', []),
        ('run_fn="stagecraft.trainer_module.run_fn.run_fn"', ["run_fn"]),
        ("from stagecraft import fit, fitting", ["fitting"]),
    ],
)
def test_a_private_name_is_seen(text: str, names: list[str]) -> None:
    assert [name.rpartition(".")[2] for name in private(text)] == names
