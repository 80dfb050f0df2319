"""The state of the emulated backend: objects in a folder, numbers of artifacts, cached executions.

The folder replaces object stores: it contains objects, and no empty folders.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import threading
from typing import Any, TypedDict

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.entrypoint.addresses import FOLDERS
from stagecraft.pipeline.kubeflow.spec import Json


def knows(address: str) -> bool:
    """Whether the backend has a store for an address."""
    return address.startswith(tuple(FOLDERS))


def below(folder: pathlib.Path, address: str) -> pathlib.Path:
    """The path of an address below a folder: ``LocalPathForURI`` in launcher_v2.go."""
    if not knows(address):
        raise ValueError(f"{address}: the backend stores artifacts at {', '.join(FOLDERS)}")
    scheme, separator, path = address.partition("://")
    return folder / FOLDERS[scheme + separator] / path


def transfer(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the files at or below ``source``, ``DownloadBlob`` and ``UploadBlob``.

    A missing source is no error.
    """
    if source.is_dir():
        for path in sorted(source.iterdir()):
            if path.is_dir() and not path.is_symlink():
                transfer(path, target / path.name)
            elif path.exists():
                _copy(path, target / path.name)
    elif source.exists():
        _copy(source, target)


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Raises IsADirectoryError for a link to a folder, which the backend opens as a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


class Outputs(TypedDict):
    """Outputs of a step."""

    parameters: Json
    artifacts: dict[str, Json]
    """``RuntimeArtifact``s: number as ``name``, ``uri``, ``type``, ``metadata``."""


class Records:
    """Records in a JSON file, for later runs."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._lock = threading.Lock()
        self._tree: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"artifacts": 0, "cache": {}}
        )

    def number(self) -> str:
        """Number of a new artifact."""
        with self._lock:
            self._tree["artifacts"] += 1
            self._write()
            return str(self._tree["artifacts"])

    def cached(self, fingerprint: str) -> Outputs | None:
        """Outputs of an execution with this fingerprint."""
        outputs: Outputs | None = self._tree["cache"].get(fingerprint)
        return outputs

    def remember(self, fingerprint: str, outputs: Outputs) -> None:
        """Stores the outputs of an execution."""
        with self._lock:
            self._tree["cache"][fingerprint] = outputs
            self._write()

    def _write(self) -> None:
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._tree))
        unfinished.replace(self._path)


def fingerprint(pipeline: str, step: specs.Step, executor_input: Json, claims: list[str]) -> str:
    """The cache key of a step, without addresses: ``GenerateCacheKey`` in cacheutils/cache.go."""
    container = step.container or {}
    inputs, outputs = executor_input["inputs"], executor_input["outputs"]
    key = {
        "pipeline": pipeline,
        "inputArtifactNames": {
            name: [artifact["name"] for artifact in given["artifacts"]]
            for name, given in inputs["artifacts"].items()
        },
        "inputParameterValues": inputs["parameterValues"],
        "outputArtifactsSpec": {
            name: {key: value for key, value in given["artifacts"][0].items() if key != "uri"}
            for name, given in outputs["artifacts"].items()
        },
        "outputParametersSpec": step.outputs("parameters"),
        "containerSpec": {
            "image": container.get("image"),
            "cmdArgs": [*container.get("command", ()), *container.get("args", ())],
            "pvcNames": sorted(set(claims)),
        },
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
