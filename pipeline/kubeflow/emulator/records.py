"""The backend's records: numbers of artifacts, and cached executions."""

from __future__ import annotations

import hashlib
import json
import pathlib
import threading
from typing import Any, TypedDict

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.spec import Json


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
        "outputParametersSpec": step.component.get("outputDefinitions", {}).get("parameters", {}),
        "containerSpec": {
            "image": container.get("image"),
            "cmdArgs": [*container.get("command", ()), *container.get("args", ())],
            "pvcNames": sorted(set(claims)),
        },
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
