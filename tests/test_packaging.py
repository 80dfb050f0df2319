"""The wheel: what it holds, and that its parts serve in somebody else's project.

``other_project`` stands for that: laid out as TFX's template is, so with a ``pipeline`` of its
own, which must not hide this project.
"""

from __future__ import annotations

import configparser
import os
import pathlib
import pkgutil
import shutil
import sys
import zipfile

import pytest
from processes import ran
from repository import FOLDERS, ROOT, TEMPLATES

from stagecraft.pipeline.cli.main import main
from stagecraft.pipeline.cli.project import writing

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OTHER_PROJECT = ROOT / "tests" / "other_project"


def within(path: pathlib.Path) -> pathlib.Path:
    """The place of a file or folder in the package; ``library`` is the package itself."""
    return path.relative_to("library") if path.parts[0] == "library" else path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel of a copy of this tree: a build leaves folders behind."""
    source = tmp_path_factory.mktemp("source")
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", ".")
    ran(*build, cwd=source)
    (built,) = (source / "dist").iterdir()
    return built


def test_every_package_is_named_in_pyproject() -> None:
    """setuptools cannot look for packages that lie in folders of another name."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {
        ".".join(("stagecraft", *within(file.parent.relative_to(ROOT)).parts))
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        if TEMPLATES not in file.parents
    }
    assert set(named) == there


def test_wheel_holds_all_files_and_no_others(wheel: pathlib.Path) -> None:
    held = {
        name
        for name in zipfile.ZipFile(wheel).namelist()
        if not name.split("/")[0].endswith("info")
    }
    source = wheel.parent.parent
    there = {
        f"stagecraft/{within(file.relative_to(source))}"
        for folder in FOLDERS
        for file in (source / folder).rglob("*")
        if file.is_file()
    }
    assert held == there
    assert {
        "stagecraft/schemas/cifar10.pbtxt",
        "stagecraft/pipeline/settings/presets/quickstart.yaml",
    } <= held


def test_wheel_says_what_it_is(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = {
            name.split("/", 1)[1]: archive.read(name).decode()
            for name in archive.namelist()
            if ".dist-info/" in name
        }
    entry_points = configparser.ConfigParser()
    entry_points.read_string(info["entry_points.txt"])
    command = entry_points["console_scripts"]["stagecraft"]
    assert pkgutil.resolve_name(command) is main
    assert "License-Expression: Apache-2.0" in info["METADATA"]
    assert "Apache License" in info["licenses/LICENSE"]


@pytest.fixture(scope="module")
def project(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Somebody's project, beside a folder into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("somebody")
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index")
    ran(*pip, "--target", folder / "site", wheel)
    return shutil.copytree(
        OTHER_PROJECT, folder / "project", ignore=shutil.ignore_patterns("__pycache__")
    )


def python(project: pathlib.Path, *words: str) -> str:
    """Runs Python in the project, where the wheel is what ``stagecraft`` means."""
    path = os.pathsep.join(map(str, (project, project.parent / "site")))
    variables = {"PYTHONPATH": path, "SOMEBODYS_ROOT": str(project.parent / "out")}
    return ran(sys.executable, *words, cwd=project, variables=variables).stdout


def test_their_pipeline_and_ours_are_two_packages(project: pathlib.Path) -> None:
    code = (
        "import pipeline.configs, stagecraft.pipeline.settings as ours, stagecraft.components\n"
        "print(pipeline.configs.__file__, ours.__file__, stagecraft.components.__file__, sep='\\n')"
    )
    site = project.parent / "site" / "stagecraft"
    assert python(project, "-c", code).split() == [
        str(project / "pipeline" / "configs.py"),
        str(site / "pipeline" / "settings" / "__init__.py"),
        str(site / "components" / "__init__.py"),
    ]


@pytest.mark.full
def test_our_components_run_in_their_pipeline(project: pathlib.Path) -> None:
    """Up to a trained and exported model of theirs, in their folder, by their runner."""
    python(project, "local_runner.py")
    (exported,) = project.parent.glob("out/pipeline_root/Trainer/model/*/Format-Serving")
    assert (exported / "saved_model.pb").exists()


@pytest.mark.full
@pytest.mark.parametrize("template", writing.templates())
def test_a_written_project_works_with_the_wheel_alone(
    wheel: pathlib.Path, project: pathlib.Path, tmp_path: pathlib.Path, template: str
) -> None:
    """Its tests pass, a run on this machine pushes a model, and it compiles for Kubeflow."""
    folder = tmp_path / "mine"
    variables = {"PYTHONPATH": str(project.parent / "site")}

    def run(*words: str | pathlib.Path) -> str:
        return ran(sys.executable, *words, cwd=tmp_path, variables=variables).stdout

    command = "from stagecraft.pipeline.cli.main import main; main()"
    run("-c", command, "init", "mine", "--template", template)
    run("-m", "pytest", "-p", "no:cacheprovider", folder, "--rootdir", folder)
    run(folder / "local_runner.py")
    (version,) = (folder / "runs" / "mine" / "serving").iterdir()
    assert (version / "saved_model.pb").exists()
    run(folder / "kubeflow_v2_runner.py")
    assert (tmp_path / "mine.yaml").exists()
