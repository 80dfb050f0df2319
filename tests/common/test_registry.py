"""Entries in files of a folder, and by entry points of other packages."""

from __future__ import annotations

import pathlib
import sys

import pytest

from stagecraft.common.registry import EntryPointError, Registry, UnknownNameError

KINDS = """
from stagecraft.common.registry import Entry
class Animal(Entry):
    def __init__(self, name): self.name, self.description = name, f"a {name}"
"""

FILES = {
    "zoo/__init__.py": "",
    "zoo/kinds.py": KINDS,
    "zoo/built_in/__init__.py": "",
    "zoo/built_in/cat.py": "from zoo.kinds import Animal\nCAT = Animal('cat')\nLEGS = 4\n",
    "zoo/built_in/dog.py": "from zoo.kinds import Animal\nDOG = Animal('dog')\n",
    "wild.py": "from zoo.kinds import Animal\n"
    "LION, CAT, WOLF = Animal('lion'), Animal('other cat'), Animal('wolf')\n",
    "wild-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: wild\nVersion: 1\n",
    "wild-1.dist-info/entry_points.txt": "[zoo.animals]\nlion = wild:LION\ncat = wild:CAT\n"
    "dingo = wild:WOLF\nstone = wild:__name__\nghost = wild_no_more:GHOST\n",
}


@pytest.fixture
def animals(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] in ("zoo", "wild")]:
        monkeypatch.delitem(sys.modules, name)
    return Registry("zoo.kinds:Animal", "zoo.animal", "zoo.built_in", "zoo.animals")


def test_names_are_those_of_files_and_of_entry_points(animals: Registry) -> None:
    assert animals.names() == ["cat", "dog", "dingo", "ghost", "lion", "stone"]
    assert [entry.name for entry in animals.built_in()] == ["cat", "dog"]
    assert "wild" not in sys.modules


def test_a_built_in_entry_comes_before_an_entry_point_of_its_name(animals: Registry) -> None:
    assert animals.get("cat").description == "a cat"
    assert "wild" not in sys.modules


def test_an_entry_point_is_imported_once(animals: Registry) -> None:
    lion = animals.get("lion")
    assert lion.description == "a lion" and animals.get("lion") is lion
    assert lion.code == ("zoo.kinds",)


def test_what_is_installed_later_is_there_after_a_refresh(
    animals: Registry, tmp_path: pathlib.Path
) -> None:
    assert "wolf" not in animals.names()
    later = tmp_path / "later" / "later-1.dist-info"
    later.mkdir(parents=True)
    (later / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1\n")
    (later / "entry_points.txt").write_text("[zoo.animals]\nwolf = wild:WOLF\n")
    sys.path.insert(0, str(tmp_path / "later"))  # the fixture's monkeypatch takes it out again
    animals.refresh()
    assert animals.get("wolf").name == "wolf"


@pytest.mark.parametrize(("name", "use"), [("dogg", "dog"), ("xyz", "one of cat, dog, dingo")])
def test_an_unknown_name(animals: Registry, name: str, use: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        animals.get(name)
    assert (caught.value.setting, caught.value.value) == ("zoo.animal", name)
    assert caught.value.suggestion.startswith(use)


@pytest.mark.parametrize("name", ["stone", "ghost", "dingo"])
def test_an_entry_point_that_gives_no_entry(animals: Registry, name: str) -> None:
    with pytest.raises(EntryPointError) as caught:
        animals.get(name)
    assert (caught.value.setting, caught.value.value) == ("zoo.animal", name)
