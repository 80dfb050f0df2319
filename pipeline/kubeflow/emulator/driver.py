"""The driver: resolves a step's inputs, and provisions its outputs.

backend/src/v2/driver: ``resolveInputs`` and ``resolveInputParameter`` in resolve.go,
``provisionOutputs`` in driver.go.
"""

from __future__ import annotations

import json
import pathlib
import uuid
from typing import Any

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.emulator import store
from stagecraft.pipeline.kubeflow.emulator.records import Outputs
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.schemas.errors import UserError

EXECUTOR_LOGS = "executor-logs"
"""Output artifact that the backend adds to every step."""


def resolve_inputs(
    step: specs.Step, arguments: Json, done: dict[str, Outputs], run: dict[str, str]
) -> Json:
    """``ExecutorInput.inputs``; ``run`` has values for placeholders in constants."""
    definitions = step.component.get("inputDefinitions", {}).get("parameters", {})
    parameters = {}
    for name, source in step.task.get("inputs", {}).get("parameters", {}).items():
        value = _parameter(step.name, name, source, arguments, done, run)
        kind = definitions.get(name, {}).get("parameterType")
        parameters[name] = to_text(value) if kind == "STRING" else specs.doubles(value)
    for name, definition in definitions.items():
        if name not in parameters and "defaultValue" in definition:
            parameters[name] = definition["defaultValue"]
        elif name not in parameters and not definition.get("isOptional"):
            raise UserError(
                f"{step.name}: the parameter {name} has neither a value nor a default.",
                record=step.name,
            )
    return {
        "parameterValues": parameters,
        "artifacts": {
            name: {"artifacts": [_artifact(step.name, name, source, done)]}
            for name, source in step.task.get("inputs", {}).get("artifacts", {}).items()
        },
    }


def outputs_address(run_address: str, step: str) -> str:
    """``ROOT/PIPELINE/RUN/TASK/SALT``; the driver runs once for all attempts."""
    return f"{run_address}/{step}/{uuid.uuid4()}"


def provision_outputs(
    step: specs.Step, task: str, launcher_root: pathlib.Path, scratch: pathlib.Path
) -> Json:
    """``ExecutorInput.outputs``, with folders in place of ``/`` and ``/tmp``."""
    outputs = step.component.get("outputDefinitions", {})
    # The API server's manifests have PUBLISH_LOGS=true.
    log = {EXECUTOR_LOGS: {"artifactType": {"schemaTitle": "system.Artifact"}}}
    return {
        "artifacts": {
            name: {
                "artifacts": [
                    {
                        "name": name,
                        "uri": f"{task}/{name}",
                        "type": definition["artifactType"],
                        "metadata": specs.doubles(definition.get("metadata", {})),
                    }
                ]
            }
            for name, definition in (outputs.get("artifacts", {}) | log).items()
        },
        "parameters": {
            name: {"outputFile": str(scratch / "kfp" / "outputs" / name)}
            for name in outputs.get("parameters", {})
        },
        "outputFile": str(store.below(launcher_root, task) / "output_metadata.json"),
    }


def _parameter(
    step: str,
    name: str,
    source: Json,
    arguments: Json,
    done: dict[str, Outputs],
    run: dict[str, str],
) -> Any:
    if "componentInputParameter" in source:
        return arguments[source["componentInputParameter"]]
    if "taskOutputParameter" in source:
        output = source["taskOutputParameter"]
        return done[output["producerTask"]]["parameters"][output["outputParameterKey"]]
    if "constant" in source.get("runtimeValue", {}):
        value = source["runtimeValue"]["constant"]
        return run.get(value, value) if isinstance(value, str) else value
    raise UserError(
        f"{step}: the backend does not resolve the parameter {name}: {source}.", record=step
    )


def _artifact(step: str, name: str, source: Json, done: dict[str, Outputs]) -> Json:
    output = source.get("taskOutputArtifact")
    if output is None:
        raise UserError(
            f"{step}: the backend does not resolve the artifact {name}: {source}.", record=step
        )
    artifact = done[output["producerTask"]]["artifacts"][output["outputArtifactKey"]]
    title = artifact["type"].get("schemaTitle")
    # The backend returns types without their schema, and numbers as doubles.
    return {
        **artifact,
        "type": {"schemaTitle": title} if title else {"instanceSchema": ""},
        # RecordArtifact adds these.
        "metadata": {
            **specs.doubles(artifact["metadata"]),
            "display_name": output["outputArtifactKey"],
            "store_session_info": "{}",
        },
    }


def to_text(value: Any) -> str:
    """``PbValueToText``, backend/src/v2/metadata/converter.go."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)
