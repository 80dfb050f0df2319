"""The Dockerfile: its contents, its entry point, and the version of Beam's boot program.

``test_image_runs.py`` runs the image.
"""

from __future__ import annotations

import pathlib
import re
import sys

import pytest
from processes import ran

import stagecraft
from stagecraft.pipeline.settings.kubeflow import DEFAULT_IMAGE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
BOOT = "/opt/apache/beam/boot"


@pytest.fixture
def entrypoint(tmp_path: pathlib.Path) -> pathlib.Path:
    """The entry point, with programs that print their names and arguments."""
    for name in ("boot", "stagecraft"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        program.chmod(0o755)
    text = (ROOT / "tools" / "image-entrypoint").read_text()
    assert text.count(BOOT) == 1
    script = tmp_path / "image-entrypoint"
    script.write_text(text.replace(BOOT, str(tmp_path / "boot")))
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("words", "program"),
    [
        # The arguments of Flink and Spark, of a worker pool, of Dataflow, and of a pool's worker.
        (["--id=1-1", "--provision_endpoint=localhost:4"], "boot"),
        (["--worker_pool"], "boot"),
        (["--semi_persist_dir=/var/opt", "--id=sdk-0-0", "--control_endpoint=c:1"], "boot"),
        (["run", "--id=1"], "stagecraft"),
        (["--help"], "stagecraft"),
        (["--version"], "stagecraft"),
        ([], "stagecraft"),
    ],
)
def test_entry_point_starts_beams_worker_or_the_command(
    entrypoint: pathlib.Path, words: list[str], program: str
) -> None:
    done = ran(entrypoint, *words, variables={"PATH": f"{entrypoint.parent}:/usr/bin:/bin"})
    assert done.stdout.split() == [program, *words]


def test_boot_is_of_the_version_that_the_image_has() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = re.findall(r"^apache-beam==(\S+) ; python_full_version (<|>=)", lock, re.MULTILINE)
    versions = {sign: version for version, sign in locked}
    [default] = re.findall(r"^ARG BEAM=apache/beam_python(\S+)_sdk:(\S+)$", DOCKERFILE, re.M)
    [python] = re.findall(r"^ARG BASE=python:(\d+\.\d+)", DOCKERFILE, re.M)
    assert default == (python, versions[">="])
    [classic] = re.findall(r"--build-arg BEAM=apache/beam_python(\S+)_sdk:(\S+)", DOCKERFILE)
    [python] = re.findall(r"--build-arg BASE=python:(\d+\.\d+)", DOCKERFILE)
    assert classic == (python, versions["<"])


def test_every_package_is_in_the_build_context() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    context = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    folders = tools["package-dir"]
    for package in tools["packages"]:
        name = package
        while name not in folders:
            name = name.rpartition(".")[0]
        assert folders[name] in context, f"{package}: .dockerignore excludes {folders[name]}/"
    assert set(folders.values()) <= context
    assert all((ROOT / path).exists() for path in context)
    [copied] = re.findall(r"^COPY (\S+) \.$", DOCKERFILE, re.M)  # the folder of the wheel
    assert copied == "."


def test_every_copied_file_is_in_the_build_context() -> None:
    context = (ROOT / ".dockerignore").read_text().splitlines()
    for sources in re.findall(r"^COPY ((?:[\w./-]+ )+)", DOCKERFILE, re.M):
        for source in sources.split():
            if source != ".":
                assert f"!{source}" in context and (ROOT / source).exists()


def test_image_starts_the_entry_point() -> None:
    assert f"COPY --from=beam {BOOT} {BOOT}" in DOCKERFILE
    assert DOCKERFILE.endswith('ENTRYPOINT ["image-entrypoint"]\n')
    assert "COPY tools/image-entrypoint /opt/stagecraft/bin/image-entrypoint" in DOCKERFILE


def test_the_page_has_the_versions_of_flink_that_beam_supports() -> None:
    from apache_beam import version
    from apache_beam.options.pipeline_options import FlinkRunnerOptions

    page = (ROOT / "docs" / "how-to" / "beam.md").read_text()
    beam = version.__version__.rpartition(".")[0]
    assert f"| {beam} | {', '.join(FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS)} |" in page
    for image in re.findall(r"apache/beam_python\S+_sdk:[\d.]+", DOCKERFILE):
        assert image in page


def test_all_files_name_the_image_of_this_version() -> None:
    """``kubeflow.image``, the commands that build it, and the manifests that use it."""
    manifests = map(str, (ROOT / "manifests").rglob("*.yaml"))
    pages = ["Dockerfile", "docs/how-to/kubeflow.md", *manifests]
    named = {
        tag
        for page in pages
        for tag in re.findall(r"(?<![\w/.])stagecraft:([\w.-]+)", (ROOT / page).read_text())
    }
    version = stagecraft.__version__
    assert named == {version, f"{version}-gpu"}
    assert f"stagecraft:{version}" == DEFAULT_IMAGE
