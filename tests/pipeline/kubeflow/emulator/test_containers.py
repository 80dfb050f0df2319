"""Containers of the emulated backend, with a program in place of the engine."""

from __future__ import annotations

import pathlib

import pytest
from two_steps import spec

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.document import Document
from stagecraft.pipeline.kubeflow.emulator import containers
from stagecraft.pipeline.kubeflow.emulator.containers import Containers


@pytest.fixture
def engines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty folder of programs, the only one on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def engine(folder: pathlib.Path, name: str, *, answers: bool = True, images: str = "") -> None:
    """An engine that has some images, and lists its calls in NAME.calls."""
    program = folder / name
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {folder / name}.calls\n'
        'case "$1" in\n'
        f"    version) exit {0 if answers else 1} ;;\n"
        f'    image) case " {images} " in *" $3 "*) exit 0 ;; *) exit 1 ;; esac ;;\n'
        "    ps) echo left1 left2 ;;\n"
        "esac\n"
    )
    program.chmod(0o755)


def step(resources: dict[str, object] | None = None) -> specs.Step:
    compiled = spec({"work": "pass"})
    compiled["deploymentSpec"]["executors"]["exec-work"]["container"]["resources"] = resources or {}
    return Document(compiled, {}).steps()["work"]


def test_no_engine(engines: pathlib.Path, tmp_path: pathlib.Path) -> None:
    engine(engines, "docker", answers=False)  # a client without its daemon
    with pytest.raises(UserError) as error:
        Containers("image:1", tmp_path)
    assert (error.value.setting, error.value.value) == ("--image", "image:1")


def test_no_image(engines: pathlib.Path, tmp_path: pathlib.Path) -> None:
    engine(engines, "docker", images="other:1")
    engine(engines, "podman")
    with pytest.raises(UserError) as error:
        Containers("image:1", tmp_path)
    assert error.value.suggestion == "docker build -t image:1 ."


def test_the_engine_is_the_one_that_has_the_image(
    engines: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    engine(engines, "docker", images="other:1")
    engine(engines, "podman", images="image:1")
    found = Containers("image:1", tmp_path)
    program, *words = found.command("name", ["a", "b"], mounts=(), variables=("KEY",), limits=())
    assert program == "podman"
    assert {"--network=none", "--pull=never", "--env=KEY"} <= set(words)
    assert words[-2:] == ["a", "b"]
    removed = (engines / "podman.calls").read_text().splitlines()[-1]
    assert removed == "rm --force left1 left2", "containers of a killed run"


@pytest.mark.parametrize(
    ("resources", "entry", "options"),
    [
        ({}, {}, []),
        ({"cpuLimit": 1.5, "resourceCpuLimit": "1500m"}, {}, ["--cpus=1.5"]),
        ({"memoryLimit": 2.0}, {}, ["--memory=2000000000", "--memory-swap=2000000000"]),
        (
            {"memoryLimit": 2.147483648, "resourceMemoryLimit": "2Gi"},
            {"emptyDirMounts": [{"mountPath": "/dev/shm", "sizeLimit": "1Gi"}]},
            ["--memory=2147483648", "--memory-swap=2147483648", "--shm-size=1073741824"],
        ),
        ({}, {"emptyDirMounts": [{"mountPath": "/cache"}]}, ["--tmpfs=/cache:rw"]),
    ],
)
def test_limits_of_a_pod(
    resources: dict[str, object], entry: dict[str, object], options: list[str]
) -> None:
    assert containers.limits(step(resources), entry) == options


def test_steps_share_a_claim(tmp_path: pathlib.Path) -> None:
    whole = containers.volumes({"pvcMount": [{"constant": "data", "mountPath": "/d"}]}, tmp_path)
    part = {"constant": "data", "mountPath": "/p", "subPath": "a"}
    [mount] = containers.volumes({"pvcMount": [part]}, tmp_path)
    assert mount.source == whole[0].source / "a" and mount.source.is_dir()
    assert str(mount) == f"{tmp_path}/data/a:/p:rw"
