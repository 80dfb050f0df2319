"""Imports run one way: schemas -> trainer_module -> components -> pipeline.

Read off the syntax trees, at any depth, so that an import inside a function counts as well.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("schemas", "trainer_module", "components", "pipeline")
"""In order: a folder may import itself and what stands before it."""

PEOPLE = {"click", "rich"}
KUBEFLOW = {"kfp", "kfp_server_api"}
FOREIGN = {
    "schemas": {"apache_beam", "keras", "kubernetes", "tensorflow", "tfx", *PEOPLE, *KUBEFLOW},
    "trainer_module": {"apache_beam", "kubernetes", *PEOPLE, *KUBEFLOW},
    "components": PEOPLE | KUBEFLOW,
    "pipeline": set(),
}
"""What each folder knows nothing of."""

ALONE = {"kubernetes": "components/kubernetes/api", "kfp.client": "pipeline/kubeflow/client"}
"""Modules that one folder alone knows."""


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{prefix}.{alias.name}") for alias in node.names)


def refusal(folder: str, name: str) -> str | None:
    """Why a module of ``folder`` may not import ``name``; None if it may."""
    top, _, rest = name.partition(".")
    if not top:
        return "a relative import"
    if top in FOREIGN[folder]:
        return f"{folder} knows nothing of {top}"
    if top == "stagecraft":
        ours = rest.partition(".")[0]
        if ours not in FOLDERS:
            return "no such folder"
        if FOLDERS.index(ours) > FOLDERS.index(folder):
            return f"{ours} stands after {folder}"
    elif top in FOLDERS:
        return f"must be imported as stagecraft.{top}"
    return None


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_imports_only_what_stands_before_it(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: imports {name}: {why}"
        for file in files
        for line, name in imported(file.read_text())
        if (why := refusal(folder, name))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("module", "folder"), ALONE.items())
def test_one_folder_alone_knows(module: str, folder: str) -> None:
    knowing = {
        file.relative_to(ROOT).parent.as_posix()
        for top in FOLDERS
        for file in (ROOT / top).rglob("*.py")
        for _, name in imported(file.read_text())
        if f"{name}.".startswith(f"{module}.")
    }
    assert knowing == {folder}


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("schemas", "from stagecraft.trainer_module import settings"),
        ("schemas", "def f():\n    import tensorflow as tf"),
        ("trainer_module", "from stagecraft import components"),
        ("trainer_module", "import apache_beam.io"),
        ("components", "import stagecraft.pipeline.settings"),
        ("components", "from . import baseline"),
        ("pipeline", "from pipeline import configs"),
    ],
)
def test_the_rule_sees(folder: str, source: str) -> None:
    assert any(refusal(folder, name) for _, name in imported(source))


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("trainer_module", "from stagecraft.schemas.features import LABEL"),
        ("components", "from stagecraft.trainer_module import settings"),
        ("pipeline", "import stagecraft.components, rich"),
    ],
)
def test_the_rule_allows(folder: str, source: str) -> None:
    assert not any(refusal(folder, name) for _, name in imported(source))


STRATEGIES = ROOT / "trainer_module" / "parallel" / "strategies"
NAMES = {path.stem for path in STRATEGIES.glob("[!_]*.py")}
NO_STRATEGY = {
    "pipeline/drill/drill.py": "settings of its scenarios",
    "trainer_module/parallel/settings.py": "the default, and a value of all_reduce",
}
"""Files that hold a strategy's name and decide nothing by it, and what they do with it."""


def decided(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each place where code goes by a strategy's name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.lineno, repr(node.value)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            attributes = [getattr(each, "attr", "") for each in sides]
            if "strategy" in attributes and not all(attributes):  # of two topologies is no name
                yield node.lineno, ast.unparse(node)


def test_a_strategys_name_decides_nothing_outside_its_file() -> None:
    assert "grid" in NAMES and len(NAMES) >= 7
    found = {
        f"{file.relative_to(ROOT)}:{line}": text
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        if STRATEGIES not in file.parents and file.relative_to(ROOT).as_posix() not in NO_STRATEGY
        for line, text in decided(file.read_text())
    }
    assert not found


@pytest.mark.parametrize(
    "source", ['a.strategy == "x"', "a.strategy in ALL", 'f("grid")', '{"tpu": 1}', '("mirrored",)']
)
def test_a_decision_by_name_is_seen(source: str) -> None:
    assert list(decided(source))
