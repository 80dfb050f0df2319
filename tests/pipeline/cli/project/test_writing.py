"""Projects are written completely or not at all."""

import ast
import os
import pathlib

import pytest
import yaml

from stagecraft.common import lazy
from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.cli.project import writing

TFX_LAYOUT = {
    "pipeline/pipeline.py",
    "pipeline/configs.py",
    "models/model.py",
    "local_runner.py",
    "kubeflow_v2_runner.py",
}


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("template", writing.templates())
def test_a_project_is_complete(tmp_path, template):
    folder = tmp_path / "new" / "My_Trips"
    assert writing.write(folder, template) == "my-trips"
    written = files(folder)
    assert set(written) >= TFX_LAYOUT | {"README.md", "Makefile", ".gitignore", "requirements.txt"}
    assert not [path for path, text in written.items() if "{{" in text]
    assert "about.md" not in written
    assert yaml.safe_load(written["settings.yaml"])["name"] == "my-trips"
    assert lazy.requirement("kubeflow") in written["requirements.txt"].splitlines()
    assert writing.templates()[template] in written["README.md"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["My_Trips"]


@pytest.mark.parametrize("template", writing.templates())
def test_a_project_is_short_and_uses_public_names(tmp_path, template):
    """A reader needs ten minutes for all its code; internal modules may move."""
    writing.write(tmp_path / "project", template)
    sources = [text for name, text in files(tmp_path / "project").items() if name.endswith(".py")]
    assert sum(len(text.splitlines()) for text in sources) < 450
    public = {"stagecraft", "stagecraft.components", "stagecraft.pipeline", "stagecraft.tables"}
    imported = {
        node.module
        for text in sources
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stagecraft")
    }
    assert imported <= public


def test_the_name_of_the_pipeline(tmp_path):
    assert writing.write(tmp_path / "9", "empty", name="taxi-9") == "taxi-9"


@pytest.mark.parametrize("existing", [(), (".git", ".venv")])
def test_an_empty_folder_is_filled(tmp_path, monkeypatch, existing):
    folder = tmp_path / "project"
    for name in (".", *existing):
        (folder / name).mkdir()
    monkeypatch.chdir(folder)
    assert writing.write(pathlib.Path("."), "empty") == "project"
    assert {"settings.yaml", *existing} <= {path.name for path in folder.iterdir()}
    assert pathlib.Path("settings.yaml").exists()


@pytest.mark.parametrize(
    ("path", "arguments", "setting", "value"),
    [
        ("new/p", {"template": "taxy"}, "--template", "taxy"),
        ("new/9p", {}, "--name", "9p"),
        ("new/Ünder", {}, "--name", "ünder"),
        ("new/p", {"name": "my_pipeline"}, "--name", "my_pipeline"),
        ("new/p", {"name": ""}, "--name", ""),
        ("new/p", {"name": "p\n"}, "--name", "p\n"),
        ("full", {}, "DIR", "full"),
        ("full/file", {}, "DIR", "full/file"),
        ("link", {}, "DIR", "link"),
    ],
)
def test_what_is_refused(tmp_path, monkeypatch, path, arguments, setting, value):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("full").mkdir()
    pathlib.Path("full/file").write_text("mine")
    pathlib.Path("link").symlink_to("nowhere")
    with pytest.raises(SettingError) as caught:
        writing.write(pathlib.Path(path), **{"template": "empty", **arguments})
    assert (caught.value.setting, caught.value.value) == (setting, value)
    assert files(tmp_path) == {"full/file": "mine"}
    assert {path.name for path in tmp_path.iterdir()} == {"full", "link"}


def test_a_folder_below_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError) as caught:
        writing.write(tmp_path / "file" / "project", "empty")
    assert caught.value.setting == "DIR"
    assert files(tmp_path) == {"file": "mine"}


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("failing", ["write_text", "rename"])
def test_nothing_stays_if_the_disk_fills_up(tmp_path, monkeypatch, exists, failing):
    folder = tmp_path / "new" / "project"
    if exists:
        folder.mkdir(parents=True)
    method, calls = getattr(pathlib.Path, failing), []

    def full(self, *arguments, **options):
        calls.append(self)
        if len(calls) == 5:
            raise OSError(28, os.strerror(28), str(self))
        return method(self, *arguments, **options)

    monkeypatch.setattr(pathlib.Path, failing, full)
    with pytest.raises(UserError) as caught:
        writing.write(folder, "empty")
    assert (caught.value.setting, caught.value.value) == ("DIR", str(folder))
    assert [*tmp_path.rglob("*")] == ([tmp_path / "new", folder] if exists else [])
