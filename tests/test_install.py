"""Each line that tells people to install something installs what it means.

The lines are found in pages, templates, notebooks and messages of the code, and run one by one, in
an empty environment, against an index of our making. It has every locked package, the other project
called ``stagecraft``, but not Stagecraft: its wheel comes from a path, as the lines say.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import resource
import shutil
import sys
import zipfile
from collections.abc import Iterator

import pytest
from made_once import made_once
from processes import ran
from repository import FOLDERS, ROOT, TEMPLATES

from stagecraft.common import lazy
from stagecraft.pipeline.cli.project import writing

LOCKS = ("requirements.lock", "requirements-gpu.lock")

LINE = re.compile(r"(?:[\w./=-]+ )*?(?:uv )?\bpip3? (?:install|wheel|uninstall) [^`\n]+")
END = re.compile(r"(?<=\S)\.(?:\s.*)?$|[;,] .*$|\s+#.*$")
"""Where a line of a message ends: with the sentence."""


def lines_of(text: str) -> list[str]:
    """The lines of pip in a text."""
    return [END.sub("", found).strip() for found in LINE.findall(text)]


def texts_of(file: pathlib.Path) -> Iterator[str]:
    """What people read of a file: of Python, its texts; of a notebook, its cells."""
    text = file.read_text()
    if file.suffix == ".ipynb":
        yield from ("".join(cell["source"]) for cell in json.loads(text)["cells"])
    elif file.suffix == ".py":
        if not re.search(r"\bpip3?\b", text):  # to parse all modules takes seconds
            return
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    else:
        yield text


def written() -> Iterator[pathlib.Path]:
    """Everything that people read, without the Dockerfile, which is built as a whole."""
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "manifests" / "README.md")
    for folder in ("docs", "notebooks", *FOLDERS):
        for file in sorted((ROOT / folder).rglob("*")):
            read = file.suffix in (".md", ".py", ".ipynb") or TEMPLATES in file.parents
            if read and file.is_file() and file.suffix != ".pyc":
                yield file


FOUND = [
    pytest.param(file, line, id=f"{file.relative_to(ROOT)}: {line}")
    for file in written()
    for line in dict.fromkeys(line for text in texts_of(file) for line in lines_of(text))
    if file != ROOT / "common" / "lazy.py"  # its command is tested with the error
]

MORE = (
    *("google-cloud-storage==3.0", "jupyterlab==4.0", "fsspec==2026.1", "s3fs==2026.1"),
    *("safetensors==0.7", "keras-hub==0.21.1", "keras-hub==0.32.0"),
    *("tensorflow-text==2.16.1", "tensorflow-text==2.21.1"),
)
"""Packages that lines or extras name, and one of the stacks does not lock."""


def fake(folder: pathlib.Path, name: str, version: str, extras: tuple[str, ...] = ()) -> None:
    """Writes a wheel with nothing in it."""
    stem = f"{re.sub('[-_.]+', '_', name)}-{version}"
    info = f"{stem}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Provides-Extra: {extra}\n" for extra in extras),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    _zip(folder / f"{stem}-py3-none-any.whl", info, {k: v.encode() for k, v in files.items()})


def real(folder: pathlib.Path, name: str) -> None:
    """Writes the wheel of an installed package of Python alone."""
    found = importlib.metadata.distribution(name)
    files = {
        str(path): (found.locate_file(path)).read_bytes()  # type: ignore[attr-defined]
        for path in found.files or ()
        if ".." not in path.parts and path.suffix != ".pyc" and path.name != "RECORD"
    }
    info = next(path.split("/")[0] for path in files if ".dist-info/" in path)
    _zip(folder / f"{name}-{found.version}-py3-none-any.whl", info, files)


def _zip(wheel: pathlib.Path, info: str, files: dict[str, bytes]) -> None:
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},"
        f"{len(data)}\n"
        for path, data in files.items()
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder of wheels: what pip finds."""

    def make(folder: pathlib.Path) -> None:
        text = "".join((ROOT / lock).read_text() for lock in LOCKS)
        locked = {f"{n}=={v}" for n, v in re.findall(r"^([\w.-]+)==([^ ]+)", text, re.MULTILINE)}
        names = {pin.partition("==")[0] for pin in locked}
        more = {pin for pin in MORE if pin.partition("==")[0] not in names}
        for pin in {*locked, *more} - {p for p in locked if p.startswith("setuptools==")}:
            name, _, version = pin.partition("==")
            fake(folder, name, version, ("and-cuda", "gcp", "grpc"))
        real(folder, "setuptools")
        fake(folder, lazy.FOREIGN, "0.1.9")

    return made_once(tmp_path_factory, "index", make)


@pytest.fixture
def clone(tmp_path: pathlib.Path, index: pathlib.Path) -> pathlib.Path:
    """A clone with an environment, a wheel, and locks of the index's files."""
    folder = tmp_path / "clone"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in LOCKS:
        (folder / name).write_text(_with_hashes((ROOT / name).read_text(), index))
    uv = shutil.which("uv", path=pathlib.Path(sys.executable).parent) or pytest.fail("no uv")
    ran(uv, "venv", "--quiet", "--python", sys.executable, folder / ".venv")
    (folder / ".venv/bin/uv").symlink_to(uv)
    pip = folder / "programs" / "pip"
    pip.parent.mkdir()
    pip.write_text(
        f'#!/bin/sh\nif [ "$1" = wheel ]; then exec {sys.executable} -m pip "$@"; fi\n'
        f'exec {sys.executable} -m pip --python {folder}/.venv "$@"\n'
    )
    pip.chmod(0o755)
    return folder


def _with_hashes(lock: str, index: pathlib.Path) -> str:
    """A lock of the same packages, with the hashes of the index."""
    pins = re.findall(r"^([\w.-]+)==([^ ]+)(.*)\\$", lock, re.MULTILINE)
    wheels = {file.name.rsplit("-", 3)[0].lower(): file for file in index.iterdir()}
    return "".join(
        f"{name}=={version}{marker} --hash=sha256:"
        f"{hashlib.sha256(wheels[stem].read_bytes()).hexdigest()}\n"
        for name, version, marker in pins
        if (stem := f"{re.sub('[-_.]+', '_', name)}-{version}".lower()) in wheels
    )


def give(clone: pathlib.Path, index: pathlib.Path, line: str, folder: pathlib.Path) -> set[str]:
    """Runs a line; returns what is installed then."""
    variables = {
        "PATH": os.pathsep.join([str(clone / "programs"), os.environ["PATH"]]),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_REQUIRE_VIRTUALENV": "0",
        "UV_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": str(index),
    }
    ran("bash", "-c", line, cwd=folder, variables=variables)
    site = next((clone / ".venv").glob("lib/*/site-packages"))
    return {found.metadata["Name"] for found in importlib.metadata.distributions(path=[str(site)])}


def build(clone: pathlib.Path, index: pathlib.Path) -> None:
    """As the page on installing says."""
    give(clone, index, "pip wheel --no-deps --wheel-dir dist .", clone)


def test_the_lines_are_found() -> None:
    lines = [str(param.values[1]) for param in FOUND]
    assert lines_of("Use it: pip install 'a[b]'. Or not.") == ["pip install 'a[b]'"]
    assert {
        "pip install -r requirements.txt",  # of a template
        "pip install fsspec s3fs",  # of a message
        "pip install '.[kubeflow]'",  # of a page
    } <= set(lines)
    assert any(line.startswith("VIRTUAL_ENV=.venv .venv/bin/uv pip install") for line in lines)
    assert len(lines) > 8


@pytest.mark.parametrize(("file", "line"), FOUND)
def test_a_line_installs_what_it_means(
    file: pathlib.Path,
    line: str,
    clone: pathlib.Path,
    index: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "dist/" in line or TEMPLATES in file.parents:
        build(clone, index)
    folder = clone
    if TEMPLATES in file.parents:  # a project of somebody who has installed the wheel
        installed = give(clone, index, "pip install --no-deps dist/*.whl", clone)
        assert installed == {lazy.NAME}
        monkeypatch.syspath_prepend(next((clone / ".venv").glob("lib/*/site-packages")))
        folder = tmp_path / "project"
        writing.write(folder, "empty")
    after = give(clone, index, line, folder)
    assert lazy.FOREIGN not in after
    ours = re.search(r"dist/|'\.\[|requirements\.txt", line) and " uninstall " not in line
    assert (lazy.NAME in after) == bool(ours)
    if "kubeflow" in line or "requirements.txt" in line:
        assert {"kfp", "s3fs"} <= after
    if "hub" in line:
        assert "keras-hub" in after


def test_the_other_project_is_what_its_name_installs(
    clone: pathlib.Path, index: pathlib.Path
) -> None:
    """The index of this test can show the mistake."""
    after = give(clone, index, "pip install 'stagecraft[kubeflow]'", clone)
    assert lazy.FOREIGN in after


@pytest.mark.slow
@pytest.mark.parametrize("extra", [pytest.param("", marks=pytest.mark.full), "[kubeflow]"])
def test_plain_pip_finds_versions(
    clone: pathlib.Path, index: pathlib.Path, tmp_path: pathlib.Path, extra: str
) -> None:
    """From the real index, in less than two minutes of its time, with the pip of a new environment.

    The time is that of the processor: neither the network nor other programs count.
    """
    build(clone, index)
    (wheel,) = (clone / "dist").iterdir()
    ran(sys.executable, "-m", "venv", tmp_path / "new")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = ran(tmp_path / "new/bin/pip", "install", "--dry-run", f"{wheel}{extra}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "Would install" in done.stdout
    assert "looking at multiple versions" not in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 120
