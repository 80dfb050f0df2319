"""What changes a fingerprint, what does not, and what is refused."""

import ast
import pathlib
import subprocess
import sys

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.fingerprints import code_fingerprint as fingerprints
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint, imported_names


@pytest.fixture
def project(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A user's project on sys.path; its code must never run."""
    (tmp_path / "userlib").mkdir()
    _write(tmp_path, "userlib/__init__.py", "raise RuntimeError('executed')\n")
    _write(
        tmp_path,
        "userlib/model.py",
        """
        from __future__ import annotations
        import json
        import typing
        import numpy
        from . import blocks
        from stagecraft.schemas import features
        if typing.TYPE_CHECKING:
            import user_types

        def build(input_shape, num_classes):
            from user_helper import WIDTH
            return WIDTH
        """,
    )
    _write(tmp_path, "userlib/blocks.py", "SIZE = 3\n")
    _write(tmp_path, "userlib/unused.py", "SIZE = 3\n")
    _write(tmp_path, "user_helper.py", "import userlib.deep.inner\nWIDTH = 4\n")
    (tmp_path / "userlib/deep").mkdir()
    _write(tmp_path, "userlib/deep/__init__.py", "")
    _write(tmp_path, "userlib/deep/inner.py", "import user_helper\n")  # a cycle
    _write(tmp_path, "user_types.py", "")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _write(folder: pathlib.Path, name: str, source: str) -> None:
    lines = source.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    (folder / name).write_text("".join(line[indent:] + "\n" for line in lines))


def test_the_same_code_gives_the_same_fingerprint(project):
    first = code_fingerprint("userlib.model:build")
    assert first == code_fingerprint("userlib.model.build") == code_fingerprint("userlib.model")
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert not {"userlib", "userlib.model", "user_helper"} & set(sys.modules)


@pytest.mark.parametrize(
    "edited",
    [
        "userlib/__init__.py",  # runs before the module does
        "userlib/model.py",
        "userlib/blocks.py",  # imported relatively
        "user_helper.py",  # inside the function
        "userlib/deep/__init__.py",
        "userlib/deep/inner.py",  # by an import of an import
    ],
)
def test_an_edit_of_what_is_imported_changes_it(project, edited):
    before = code_fingerprint("userlib.model:build")
    with (project / edited).open("a") as file:
        file.write("# edited\n")
    assert code_fingerprint("userlib.model:build") != before


@pytest.mark.parametrize("edited", ["userlib/unused.py", "user_types.py"])
def test_an_edit_of_anything_else_does_not(project, edited):
    before = code_fingerprint("userlib.model:build")
    with (project / edited).open("a") as file:
        file.write("# edited\n")
    assert code_fingerprint("userlib.model:build") == before


def test_a_folder_without_an_init_file_is_a_package_too(project):
    (project / "userlib/plain").mkdir()
    _write(project, "userlib/plain/parts.py", "SIZE = 3\n")
    _write(project, "userlib/blocks.py", "from userlib.plain import parts\n")
    before = code_fingerprint("userlib.model")
    _write(project, "userlib/plain/parts.py", "SIZE = 4\n")
    assert code_fingerprint("userlib.model") != before


def test_the_folder_does_not_count(project, tmp_path_factory):
    moved = tmp_path_factory.mktemp("moved") / "project"
    here = code_fingerprint("userlib.model:build")
    project.rename(moved)
    code = (
        f"import sys; sys.path.insert(0, {str(moved)!r})\n"
        "from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint\n"
        "print(code_fingerprint('userlib.model:build'))"
    )
    there = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert there.stdout.strip() == here


def test_a_root_counts_wherever_it_lies(project):
    both = code_fingerprint("userlib.blocks", "yaml.loader")
    assert both != code_fingerprint("userlib.blocks")
    assert both == code_fingerprint("yaml.loader", "userlib.blocks")


def test_an_installed_root_brings_its_siblings_only(project):
    installed = project / "site-packages" / "installedlib"
    installed.mkdir(parents=True)
    _write(installed, "__init__.py", "")
    _write(installed, "model.py", "import yaml\nfrom installedlib import blocks\nbuild = 1\n")
    _write(installed, "blocks.py", "")
    sys.path.insert(0, str(installed.parent))
    try:
        before = code_fingerprint("installedlib.model:build")
        _write(installed, "blocks.py", "SIZE = 1")
        assert code_fingerprint("installedlib.model:build") != before
    finally:
        sys.path.remove(str(installed.parent))


def test_our_own_code():
    settings = code_fingerprint("stagecraft.trainer_module.settings")
    assert settings == code_fingerprint("stagecraft.trainer_module.settings:TrainSettings")
    assert settings != code_fingerprint("stagecraft.schemas.features")


@pytest.mark.parametrize(
    ("dotted", "name", "place"),
    [
        ("userlib.modle:build", "userlib.modle", "{project}/userlib."),
        ("userlib.modle.build", "modle", "userlib ({project}/userlib/__init__.py)"),
        ("no_such_library:build", "no_such_library", "{project}"),
        ("userlib.model:biuld", "biuld", "userlib.model ({project}/userlib/model.py)"),
        ("userlib.model.biuld", "biuld", "userlib.model ({project}/userlib/model.py)"),
        ("", "", ""),
        ("userlib..model", "model", "userlib ({project}/userlib/__init__.py)"),
    ],
)
def test_a_name_that_does_not_exist(project, dotted, name, place):
    with pytest.raises(UserError) as caught:
        code_fingerprint(dotted)
    assert (caught.value.value, caught.value.record) == (dotted, name)
    assert f"{name!r}" in str(caught.value)
    assert place.format(project=project) in str(caught.value)


def test_a_source_that_is_not_python(project):
    _write(project, "userlib/blocks.py", "SIZE = 3\ndef broken(:\n")
    with pytest.raises(UserError) as caught:
        code_fingerprint("userlib.model:build")
    assert caught.value.file == str(project / "userlib/blocks.py")
    assert caught.value.record == "2"


def test_a_name_may_be_bound_anyhow(project):
    _write(project, "reexported.py", "from userlib.model import build as make\n")
    _write(project, "starred.py", "from userlib.model import *\n")
    _write(project, "conditional.py", "try:\n    build = None\nexcept ImportError:\n    pass\n")
    for name in ("reexported:make", "starred:build", "conditional:build"):
        code_fingerprint(name)


@pytest.mark.parametrize(
    ("source", "sees"),
    [
        ("import stagecraft as sc\ndef f(): sc.parallelize(1)", True),
        ("import stagecraft\ndef f(): stagecraft.parallelize(1)", True),
        ("from stagecraft import parallelize", True),
        ("import stagecraft as sc\ndef f(): sc.Muon(1)", False),
        ("import stagecraft as sc", False),
    ],
)
def test_public_names_of_stagecraft_are_their_modules(tmp_path, monkeypatch, source, sees):
    (tmp_path / "users_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    before = code_fingerprint("users_module")
    read = fingerprints._read

    def changed(name, origin):
        return read(name, origin) + b"#" * (name == "stagecraft.parallel_model.session")

    monkeypatch.setattr(fingerprints, "_read", changed)
    assert (code_fingerprint("users_module") != before) == sees


def test_imported_names():
    source = """
import a.b as c
from d import e, f as g
from . import h
from ..i import j
from k import *
if TYPE_CHECKING:
    import hidden
else:
    import shown
def function():
    import inside
"""
    found = set(imported_names(ast.parse(source), "top.middle.module", is_package=False))
    assert found == {"a.b", "d.e", "d.f", "top.middle.h", "top.i.j", "k", "shown", "inside"}
    package = ast.parse("from . import x\nfrom .y import z")
    assert set(imported_names(package, "top.middle", is_package=True)) == {
        "top.middle.x",
        "top.middle.y.z",
    }
