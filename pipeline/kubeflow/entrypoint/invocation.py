"""What the backend tells a step, and what the step tells it: ``ExecutorInput``, ``ExecutorOutput``.

api/v2alpha1/pipeline_spec.proto in kubeflow/pipelines, in their JSON form.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from stagecraft.pipeline.kubeflow.entrypoint import addresses

Json = dict[str, Any]


class Invocation:
    """One run of a step."""

    def __init__(self, executor_input: str, inputs_spec: str, task: str):
        """Reads what came on the command line.

        Args:
            executor_input: ``ExecutorInput`` as JSON.
            inputs_spec: the component's ``inputDefinitions`` as JSON.
            task: name of the step.
        """
        self.input: Json = json.loads(executor_input)
        self.inputs_spec: Json = json.loads(inputs_spec)
        self.task = task

    @property
    def parameters(self) -> Json:
        """Values by name; to be changed."""
        inputs = self.input.setdefault("inputs", {})
        return inputs.setdefault("parameterValues", {})

    def artifacts(self, side: str) -> Json:
        """``RuntimeArtifact``s by name, of ``inputs`` or ``outputs``; to be changed."""
        return {
            name: artifact
            for name, given in self.input.get(side, {}).get("artifacts", {}).items()
            for artifact in given.get("artifacts", ())[:1]
        }

    def pipeline_folder(self) -> str:
        """Address of what belongs to the pipeline. Call it while outputs have their addresses."""
        [output, *_] = self.artifacts("outputs").values()
        return addresses.pipeline_folder(output["uri"], self.task)

    def write(self, output: Json) -> None:
        """Writes the step's ``ExecutorOutput``."""
        path = self._output
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(output))

    def output(self) -> Json:
        """The ``ExecutorOutput`` as it was written."""
        written: Json = json.loads(self._output.read_text())
        return written

    @property
    def _output(self) -> pathlib.Path:
        return pathlib.Path(self.input["outputs"]["outputFile"])
