"""``ExecutorInput`` and ``ExecutorOutput`` of pipeline_spec.proto, in their JSON form."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Collection

from stagecraft.pipeline.kubeflow.spec import ESCAPED, Json

_BACKEND_METADATA = ("display_name", "store_session_info")
"""Metadata that ``RecordArtifact`` (backend/src/v2/metadata/client.go) adds to every artifact."""


class Invocation:
    """One run of a step."""

    def __init__(self, executor_input: str, inputs_spec: str, outputs: Collection[str]):
        """Reads JSON; restores escaped parameters.

        Drops outputs that the component does not name, such as the backend's log.
        """
        self.input: Json = json.loads(executor_input)
        self.inputs_spec: Json = json.loads(inputs_spec)
        for name, value in self.parameters.items():
            if isinstance(value, str) and value.startswith(ESCAPED):
                self.parameters[name] = json.loads(value.removeprefix(ESCAPED))
        artifacts = self.input.get("outputs", {}).get("artifacts", {})
        for name in artifacts.keys() - set(outputs):
            del artifacts[name]
        for artifact in self.artifacts("inputs").values():
            for name in _BACKEND_METADATA:
                artifact.get("metadata", {}).pop(name, None)

    @property
    def parameters(self) -> Json:
        """Values by name; mutable."""
        inputs = self.input.setdefault("inputs", {})
        return inputs.setdefault("parameterValues", {})

    def artifacts(self, side: str) -> Json:
        """``RuntimeArtifact``s by name, of ``inputs`` or ``outputs``; mutable."""
        return {
            name: artifact
            for name, artifacts in self.input.get(side, {}).get("artifacts", {}).items()
            for artifact in artifacts.get("artifacts", ())[:1]
        }

    def take_resolved(self, name: str) -> list[Json]:
        """Removes the parameter of this name; the artifacts that a resolver found and it tells."""
        value = self.parameters.pop(name, "")
        found = json.loads(value) if value else []
        return found if isinstance(found, list) else [found]

    def write(self, output: Json) -> None:
        """Writes the step's ``ExecutorOutput``."""
        path = self._output
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(output))

    def output(self) -> Json:
        """Reads the ``ExecutorOutput``."""
        written: Json = json.loads(self._output.read_text())
        return written

    @property
    def _output(self) -> pathlib.Path:
        return pathlib.Path(self.input["outputs"]["outputFile"])
