"""Imports run one way: common, schemas, trainer_module, library, components, pipeline, contrib.

Inside a folder they run in no circle. A few modules import contrib when somebody asks
for it.

The tests read the syntax trees at any depth, so that an import inside a function counts as well.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import pathlib
from collections.abc import Iterator

import pytest
from repository import FOLDERS, ROOT, TEMPLATES

PEOPLE = {"click", "rich"}
KUBEFLOW = {"kfp", "kfp_server_api"}
FOREIGN = {
    "common": {"apache_beam", "keras", "kubernetes", "tensorflow", "tfx", *PEOPLE, *KUBEFLOW},
    "schemas": {"apache_beam", "keras", "kubernetes", "tensorflow", "tfx", *PEOPLE, *KUBEFLOW},
    "trainer_module": {"apache_beam", "kubernetes", *PEOPLE, *KUBEFLOW},
    "library": {"apache_beam", "kubernetes", "tfx", "click", *KUBEFLOW},
    "components": PEOPLE | KUBEFLOW,
    "pipeline": set(),
    "contrib": set(),
}
"""What each folder knows nothing of."""

FACES = {ROOT / "library" / "extend.py", ROOT / "library" / "estimator.py"}
"""The public names of all folders, each imported on first use."""

CONTRIB_USERS = {
    "pipeline/__init__.py",
    "pipeline/checks/beam_engine.py",
    "pipeline/cli/commands/plan.py",
    "pipeline/cli/commands/render.py",
    "pipeline/cli/commands/tfx.py",
    "pipeline/project.py",
}
"""Modules of the core that import ``contrib``: in a function, or as a name of ``lazy.exports``."""

HANDED = {"trainer_module/engines": "stagecraft.trainer_module.planning"}
"""Folder -> folder that hands it objects, and of which it imports one type alone."""

ALONE = {"kubernetes": "components/kubernetes", "kfp.client": "pipeline/kubeflow/client"}
"""Modules that one folder alone knows."""


@functools.cache
def imported(source: str) -> list[tuple[int, str]]:
    """Line and full name of everything that a module imports."""
    return list(_imported(source))


def _imported(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{prefix}.{alias.name}") for alias in node.names)


def folder_of(name: str) -> str:
    """The folder of a module; those of ``library`` stand directly below ``stagecraft``."""
    top = name.removeprefix("stagecraft").removeprefix(".").partition(".")[0]
    return "library" if not top or not (ROOT / top).is_dir() else top


def dotted(folder: pathlib.Path) -> str:
    """The import name of a folder."""
    parts = folder.relative_to(ROOT).parts
    return ".".join(("stagecraft", *(parts[1:] if parts[0] == "library" else parts)))


def refusal(folder: str, name: str) -> str | None:
    """Why a module of ``folder`` may not import ``name``; None if it may."""
    top = name.partition(".")[0]
    if not top:
        return "a relative import"
    if top in FOREIGN[folder]:
        return f"{folder} knows nothing of {top}"
    if top == "stagecraft":
        ours = folder_of(name)
        if ours not in FOLDERS:
            return "no such folder"
        if FOLDERS.index(ours) > FOLDERS.index(folder):
            return f"{ours} stands after {folder}"
    elif top in FOLDERS:
        return f"must be imported as stagecraft.{top}"
    return None


def sources(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """The modules below a folder, without those of projects that ``stagecraft init`` writes."""
    return (file for file in folder.rglob("*.py") if TEMPLATES not in file.parents)


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_imports_only_what_stands_before_it(folder: str) -> None:
    files = sorted({*sources(ROOT / folder)} - FACES)
    assert files
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: imports {name}: {why}"
        for file in files
        for line, name in imported(file.read_text())
        if (why := refusal(folder, name)) and not reaches(file, name)
    ]
    assert not wrong, "\n".join(wrong)


def reaches(file: pathlib.Path, name: str) -> bool:
    """Whether a module of the core may import a name of contrib."""
    is_user = file.relative_to(ROOT).as_posix() in CONTRIB_USERS
    return is_user and name.startswith("stagecraft.contrib")


def test_contrib_is_imported_when_it_is_needed() -> None:
    early = {
        file: name
        for file in CONTRIB_USERS
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for _, name in imported(ast.unparse(node))
        if f"{name}.".startswith("stagecraft.contrib.")
    }
    assert early == {}


PACKAGES = sorted({file.parent for top in FOLDERS for file in sources(ROOT / top)})
"""Each folder of modules."""


def entries(folder: pathlib.Path) -> set[str]:
    """Modules and folders side by side in a folder."""
    return {file.relative_to(folder).parts[0] for file in sources(folder)} - {"__init__.py"}


def imports_between_entries(folder: pathlib.Path) -> dict[str, set[str]]:
    """Which entries of a folder each of its entries imports."""
    prefix = f"{dotted(folder)}."
    names = {entry.removesuffix(".py") for entry in entries(folder)}
    graph: dict[str, set[str]] = {name: set() for name in names}
    for file in sources(folder):
        own = file.relative_to(folder).parts[0].removesuffix(".py")
        for _, name in imported(file.read_text()) if own in names else ():
            other = name.removeprefix(prefix).partition(".")[0]
            if name.startswith(prefix) and other in names - {own}:
                graph[own].add(other)
    return graph


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_circle_inside_a_folder(folder: pathlib.Path) -> None:
    graphlib.TopologicalSorter(imports_between_entries(folder)).prepare()


def test_a_circle_is_seen(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for name, other in (("a/one", "a.b"), ("a/b/two", "a.one")):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"def f():\n    from stagecraft.{other} import x\n")
    assert imports_between_entries(tmp_path / "a") == {"one": {"b"}, "b": {"one"}}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(imports_between_entries(tmp_path / "a")).prepare()


@pytest.mark.parametrize(("module", "folder"), ALONE.items())
def test_one_folder_alone_knows(module: str, folder: str) -> None:
    knowing = {
        file.relative_to(ROOT).parent.as_posix()
        for top in FOLDERS
        for file in (ROOT / top).rglob("*.py")
        for _, name in imported(file.read_text())
        if f"{name}.".startswith(f"{module}.")
    }
    assert knowing
    assert {other for other in knowing if not f"{other}/".startswith(f"{folder}/")} == set()


@pytest.mark.parametrize(("folder", "other"), HANDED.items())
def test_a_folder_gets_objects_of_another(folder: str, other: str) -> None:
    names = {name for file in sources(ROOT / folder) for _, name in imported(file.read_text())}
    assert {name for name in names if name.startswith(other)} == {f"{other}.plan.Plan"}


@pytest.mark.parametrize(
    ("folder", "source", "refused"),
    [
        ("common", "from stagecraft.schemas import features", True),
        ("schemas", "from stagecraft.trainer_module import settings", True),
        ("schemas", "def f():\n    import tensorflow as tf", True),
        ("trainer_module", "from stagecraft import components", True),
        ("trainer_module", "import apache_beam.io", True),
        ("components", "import stagecraft.pipeline.settings", True),
        ("components", "from . import baseline", True),
        ("pipeline", "from pipeline import configs", True),
        ("trainer_module", "from stagecraft.schemas.features import LABEL", False),
        ("components", "from stagecraft.trainer_module import settings", False),
        ("pipeline", "import stagecraft.components, rich", False),
    ],
)
def test_the_rule(folder: str, source: str, refused: bool) -> None:
    assert any(refusal(folder, name) for _, name in imported(source)) == refused


STRATEGIES = ROOT / "trainer_module" / "parallel" / "strategies"
NAMES = {path.stem for path in STRATEGIES.glob("[!_]*.py")} - {"auto"}
"""Without ``auto``, a value of other settings as well; a strategy's ``resolves`` says it."""
NO_STRATEGY = {
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
