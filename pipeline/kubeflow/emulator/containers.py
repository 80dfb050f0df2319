"""Containers in place of processes: a step runs in the image, as in a pod of the backend.

The command line of ``run`` is that of docker and of podman.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from stagecraft.common import kubernetes_syntax
from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.emulator import emissary
from stagecraft.pipeline.kubeflow.entrypoint.addresses import FOLDERS
from stagecraft.pipeline.kubeflow.spec import Json

ENGINES = ("docker", "podman")

STORE_PATH = "/var/run/stagecraft/store"
"""Path in a container: the folder that replaces the object store."""

_EMISSARY_PATH = "/var/run/argo/emissary.py"
_LABEL = "stagecraft.emulated"


class Mount(NamedTuple):
    """A folder or file of this machine in a container."""

    source: pathlib.Path
    target: str
    mode: str = "rw"

    def __str__(self) -> str:
        """The argument of ``--volume``."""
        return f"{self.source}:{self.target}:{self.mode}"


class Containers:
    """A container engine and the image of all steps."""

    def __init__(self, image: str, folder: pathlib.Path):
        """Finds the engine that has the image, and removes containers of a killed run.

        Args:
            image: as ``docker run`` names it. The engine does not pull it.
            folder: of the emulated backend, held by this process alone.

        Raises:
            UserError: no engine answers, or none has the image.
        """
        self.image, self._folder = image, folder
        self._label = f"{_LABEL}={folder.absolute()}"
        answering = [
            name for name in ENGINES if shutil.which(name) and _ran(name, "version")[0] == 0
        ]
        if not answering:
            raise UserError(
                f"--image {image} needs docker or podman, and neither answers on this machine. "
                "Start the Docker daemon, or install podman.",
                setting="--image",
                value=image,
                suggestion="podman",
            )
        having = [name for name in answering if _ran(name, "image", "inspect", image)[0] == 0]
        if not having:
            raise UserError(
                f"--image {image}: {' and '.join(answering)} has no such image. Build it: "
                f"{answering[0]} build -t {image} .",
                setting="--image",
                value=image,
                suggestion=f"{answering[0]} build -t {image} .",
            )
        self._engine = having[0]
        _, left = _ran(self._engine, "ps", "--all", "--quiet", "--filter", f"label={self._label}")
        self.remove(left.split())

    def command(
        self,
        name: str,
        arguments: Iterable[str],
        *,
        mounts: Iterable[Mount],
        variables: Iterable[str],
        limits: Iterable[str],
    ) -> list[str]:
        """The command line that runs a container without a network.

        Argo's emissary is the container's first process, as in a pod. The end of standard input
        ends the container, and SIGTERM goes on to the step.

        Args:
            name: of the container.
            arguments: of the step.
            mounts: of the container.
            variables: names of variables that have their values in the caller's environment.
            limits: options of ``run``, see :func:`limits`.
        """
        own = Mount(pathlib.Path(emissary.__file__), _EMISSARY_PATH, mode="ro")
        return [
            *(self._engine, "run", "--interactive", f"--name={name}", f"--label={self._label}"),
            # SELinux would hide the mounted folders.
            *("--network=none", "--pull=never", "--security-opt=label=disable", *limits),
            *(f"--volume={mount}" for mount in (*mounts, own)),
            *(f"--env={variable}" for variable in variables),
            *("--entrypoint=python", self.image, _EMISSARY_PATH, *arguments),
        ]

    def remove(self, names: Iterable[str]) -> None:
        """Removes containers, whether they run or not."""
        if names := list(names):
            _ran(self._engine, "rm", "--force", *names)

    @contextlib.contextmanager
    def writable(self) -> Iterator[None]:
        """Lets the image's user write in folders that this process makes in the block.

        The emulated backend's folder is open to this process's user alone.
        """
        self._folder.chmod(0o700)
        before = os.umask(0)
        try:
            yield
        finally:
            os.umask(before)

    def take_over(self, folders: Iterable[pathlib.Path]) -> None:
        """Gives this process's user what the image's user wrote in mounted folders.

        Root needs no such help. In a container of an engine without root, root is this user.
        """
        if not os.getuid():
            return
        options = _ran(self._engine, "info", "--format={{.SecurityOptions}}")[1]
        without_root = self._engine == "podman" or "rootless" in options
        owner = "0:0" if without_root else f"{os.getuid()}:{os.getgid()}"
        names = [str(folder) for folder in folders]
        _ran(
            *(self._engine, "run", "--rm", "--network=none", "--pull=never", "--user=0:0"),
            *("--security-opt=label=disable", "--entrypoint=sh"),
            *(f"--volume={name}:{name}" for name in names),
            *(self.image, "-c", 'chown -R "$@" && shift && chmod -R a+rwX "$@"', "sh"),
            *(owner, *names),
        )


def limits(step: specs.Step, entry: Json) -> list[str]:
    """The options of ``run`` for the limits of a pod: processors, memory, memory-backed volumes.

    Args:
        step: its container has the limits of processors and memory.
        entry: of the step in the platform document.
    """
    assert step.container is not None
    options = []
    resources = step.container.get("resources", {})
    if cpu := _amount(resources, "resourceCpuLimit", "cpuLimit", 1):
        options.append(f"--cpus={cpu:g}")
    if memory := memory_limit(step):
        options += [f"--memory={memory}", f"--memory-swap={memory}"]  # nodes have no swap
    for volume in entry.get("emptyDirMounts", ()):
        size = int(kubernetes_syntax.parse_quantity(volume.get("sizeLimit", "")) or 0)
        if volume.get("mountPath") == "/dev/shm":
            options += [f"--shm-size={size}"] if size else []
        else:
            options.append(f"--tmpfs={volume['mountPath']}:" + (f"size={size}" if size else "rw"))
    return options


def memory_limit(step: specs.Step) -> int:
    """The memory limit of a step in bytes; 0 without one."""
    assert step.container is not None
    resources = step.container.get("resources", {})
    return int(_amount(resources, "resourceMemoryLimit", "memoryLimit", 10**9))


def volumes(entry: Json, folder: pathlib.Path) -> list[Mount]:
    """A folder for each claim of a step, shared by all steps that mount the claim."""
    mounts = []
    for mount in entry.get("pvcMount", ()):
        source = folder / mount.get("constant", "") / mount.get("subPath", "")
        source.mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(source, mount["mountPath"]))
    return mounts


def launcher_mounts(root: pathlib.Path, tmp: pathlib.Path, objects: pathlib.Path) -> list[Mount]:
    """The launcher's copies of artifacts, ``/tmp``, and the folder in place of the object store."""
    for folder in (*(root / name for name in FOLDERS.values()), objects):
        folder.mkdir(parents=True, exist_ok=True)
    copies = [Mount(root / name, f"/{name}") for name in FOLDERS.values()]
    return [*copies, Mount(tmp, "/tmp"), Mount(objects, STORE_PATH)]


def _amount(resources: Mapping[str, object], text: str, number: str, unit: float) -> float:
    """A limit: newer files have a quantity, older ones a number of units."""
    parsed = kubernetes_syntax.parse_quantity(str(resources.get(text, "")))
    if parsed is not None:
        return float(parsed)
    return float(str(resources.get(number, 0))) * unit


def _ran(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a short command."""
    done = subprocess.run(arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout.strip()
