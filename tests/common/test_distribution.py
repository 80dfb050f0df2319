"""Where this distribution came from, and the other project with its import name."""

from __future__ import annotations

import json
import pathlib
import shlex
from typing import Any

import click.testing
import pytest

import stagecraft
from stagecraft import components
from stagecraft.common import lazy
from stagecraft.common.lazy import ForeignDistributionError
from stagecraft.pipeline.cli.main import main


class Site:
    """A site-packages folder before all others."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def add(self, name: str, version: str, origin: dict[str, Any] | None = None) -> None:
        """What pip writes about a distribution."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps(origin))

    def package(self) -> None:
        """The folder that both projects write."""
        (self.folder / "stagecraft").mkdir()
        (self.folder / "stagecraft" / "__init__.py").touch()


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return Site(folder)


def test_the_other_project_in_our_folder_is_refused(site: Site) -> None:
    site.package()
    site.add("stagecraft", "0.1.9")
    with pytest.raises(ForeignDistributionError) as caught:
        lazy.check_distribution()
    assert caught.value.value == "stagecraft 0.1.9"
    assert caught.value.file == str(site.folder / "stagecraft")
    assert caught.value.suggestion == "pip uninstall --yes stagecraft tfx-stagecraft"


@pytest.mark.parametrize("name", ["fit", "Parallel"])
def test_the_library_refuses_it_at_the_first_name(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delitem(vars(stagecraft), name, raising=False)
    site.package()
    site.add("stagecraft", "0.1.9")
    with pytest.raises(ForeignDistributionError):
        getattr(stagecraft, name)


def test_components_refuse_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(components), "Trainer", raising=False)
    site.package()
    site.add("stagecraft", "0.1.9")
    with pytest.raises(ForeignDistributionError):
        _ = components.Trainer


def test_the_command_refuses_it_in_one_sentence(site: Site) -> None:
    site.package()
    site.add("stagecraft", "0.1.9")
    done = click.testing.CliRunner().invoke(main, ["init", "--list-nothing"])
    assert done.exit_code == 1
    assert "stagecraft 0.1.9" in done.output and "Traceback" not in done.output


@pytest.mark.parametrize("name", ["stagecraft-extras", "tfx-stagecraft"])
def test_names_that_are_not_the_other_project(site: Site, name: str) -> None:
    site.package()
    site.add(name, "0.1.9")
    lazy.check_distribution()


def test_what_an_old_build_left_in_a_clone_is_no_installation(site: Site) -> None:
    site.add("stagecraft", "0.1.0")
    lazy.check_distribution()


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, "tfx-stagecraft[kubeflow]==7.8"),
        ({"url": "file://{}/a%20b.whl"}, "tfx-stagecraft[kubeflow] @ file://{}/a%20b.whl"),
        ({"url": "file://{}/gone.whl"}, "# tfx-stagecraft[kubeflow] @ file://{}/gone.whl"),
        ({"url": "file://{}", "dir_info": {}}, "tfx-stagecraft[kubeflow] @ file://{}"),
        ({"url": "file://{}", "dir_info": {"editable": True}}, "-e '{}[kubeflow]'"),
        (
            {"url": "https://h/r", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            "tfx-stagecraft[kubeflow] @ git+https://h/r@12ab",
        ),
        ({"url": "https://h/r.whl"}, "tfx-stagecraft[kubeflow] @ https://h/r.whl"),
    ],
)
def test_a_requirement_says_where_it_came_from(
    site: Site, tmp_path: pathlib.Path, origin: dict[str, Any] | None, line: str
) -> None:
    (tmp_path / "a b.whl").touch()
    if origin:
        origin["url"] = origin["url"].format(tmp_path)
    site.add("tfx-stagecraft", "7.8", origin)
    assert lazy.requirement("kubeflow") == line.format(tmp_path)


def test_a_command_adds_an_extra(site: Site, tmp_path: pathlib.Path) -> None:
    wheel = tmp_path / "a b.whl"
    wheel.touch()
    url = wheel.as_uri()
    site.add("tfx-stagecraft", "7.8", {"url": url})
    assert shlex.split(lazy.install("hub")) == ["pip", "install", f"tfx-stagecraft[hub] @ {url}"]
    wheel.unlink()
    assert shlex.split(lazy.install("hub")) == ["pip", "install", f"tfx-stagecraft[hub] @ {url}"]
