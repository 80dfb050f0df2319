"""The driver: resolves a step's inputs, and provisions its outputs.

backend/src/v2/driver: ``resolveInputs`` and ``resolveInputParameter`` in resolve.go,
``provisionOutputs`` in driver.go.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
import uuid
from typing import Any, Literal

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.emulator import store
from stagecraft.pipeline.kubeflow.emulator.store import Outputs
from stagecraft.pipeline.kubeflow.emulator.values import to_text
from stagecraft.pipeline.kubeflow.spec import Json

EXECUTOR_LOGS = "executor-logs"
"""Output artifact that the backend adds to every step."""

_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['(.+?)'\]\}\}")
_NULL = object()
"""Value of an optional parameter of the pipeline that a run does not give."""


class Producers(dict[str, Outputs]):
    """Outputs of earlier steps, by the names under which the drivers record the steps."""

    def output(
        self, step: str, producer: str, kind: Literal["parameters", "artifacts"], key: str
    ) -> Any:
        """An output of a producer, for a step.

        Raises:
            UserError: no step is recorded under this name, or it has no such output.
        """
        if producer not in self:
            raise UserError(
                f"{step}: the driver cannot find the producer {producer}. An importer is recorded "
                "under its taskInfo.name.",
                record=step,
            )
        if key not in self[producer][kind]:
            raise UserError(
                f"{step}: the driver finds no {key!r} in the {kind} of {producer}.", record=step
            )
        return self[producer][kind][key]


def resolve_inputs(
    step: specs.Step, given: Json, done: Producers, run: dict[str, str], status: Json
) -> Json:
    """``ExecutorInput.inputs``, without defaults, which the launcher adds.

    Args:
        step: to run.
        given: ``ExecutorInput.inputs`` of the DAG that has the step.
        done: outputs of earlier steps.
        run: values of placeholders in constants, such as ``{{$.pipeline_job_uuid}}``.
        status: ``PipelineTaskFinalStatus`` of the task before an exit handler.

    Raises:
        UserError: the backend would not resolve an input.
    """
    definitions = step.inputs("parameters")
    parameters: Json = {}
    if step.is_dag:  # omitted parameters of a pipeline in a pipeline
        parameters = {
            name: definition["defaultValue"]
            for name, definition in definitions.items()
            if definition.get("isOptional") and definition.get("defaultValue") is not None
        }
    for name, source in step.sources("parameters").items():
        value = (
            status
            if "taskFinalStatus" in source
            else _parameter(step.name, name, source, given["parameterValues"], done, run)
        )
        if value is _NULL:
            if not definitions.get(name, {}).get("isOptional"):
                raise _problem(step, name, "is null, and not optional")
            continue
        parameters[name] = value
    for name, definition in definitions.items():
        if name in parameters or not definition.get("isOptional"):
            value = parameters.get(name)
            parameters[name] = _converted(step, name, definition, value, name in parameters)
    return {
        "parameterValues": parameters,
        "artifacts": {
            name: given["artifacts"].get(source.get("componentInputArtifact"))
            or {"artifacts": [_artifact(step.name, name, source, done)]}
            for name, source in step.sources("artifacts").items()
        },
    }


def resolve_arguments(arguments: list[str], executor_input: Json) -> list[str]:
    """A container's command or arguments, ``resolveContainerArgs`` in util.go.

    Raises:
        UserError: a placeholder names a parameter without a value.
    """
    values = executor_input["inputs"]["parameterValues"]

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UserError(f"the driver fails: {match[0]} has no value", value=match[0])
        return _text_of(values[match[1]])

    resolved = []
    for argument in arguments:
        if "$.outputs" in argument:  # the launcher fills it in
            resolved.append(argument)
        elif argument.strip().startswith('{"IfPresent":'):
            clause = json.loads(argument)["IfPresent"]
            present = values.get(clause["InputName"]) is not None
            chosen = clause.get("Then" if present else "Else") or []
            chosen = [chosen] if isinstance(chosen, str) else chosen
            resolved += [_PARAMETER.sub(value_of, text) for text in chosen]
        else:
            resolved.append(_PARAMETER.sub(value_of, argument))
    return resolved


def _text_of(value: Any) -> str:
    """``pbValueToString`` in util.go: Go's %g for fractions."""
    is_fraction = specs.type_of(value) == "NUMBER_DOUBLE" and not float(value).is_integer()
    return repr(float(value)) if is_fraction else to_text(value)


def outputs_address(run_address: str, step: str) -> str:
    """``ROOT/PIPELINE/RUN/TASK/SALT``; the driver runs once for all attempts."""
    return f"{run_address}/{step}/{uuid.uuid4()}"


def provision_outputs(
    step: specs.Step, task: str, launcher_root: pathlib.Path, scratch: pathlib.Path
) -> Json:
    """``ExecutorInput.outputs``, with folders in place of ``/`` and ``/tmp``."""
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
            for name, definition in (step.outputs("artifacts") | log).items()
        },
        "parameters": {
            name: {"outputFile": str(scratch / "kfp" / "outputs" / name)}
            for name in step.outputs("parameters")
        },
        "outputFile": str(store.below(launcher_root, task) / "output_metadata.json"),
    }


def _parameter(
    step: str, name: str, source: Json, arguments: Json, done: Producers, run: dict[str, str]
) -> Any:
    if "componentInputParameter" in source:
        return arguments.get(source["componentInputParameter"], _NULL)
    if "taskOutputParameter" in source:
        output = source["taskOutputParameter"]
        return done.output(step, output["producerTask"], "parameters", output["outputParameterKey"])
    if "constant" in source.get("runtimeValue", {}):
        value = source["runtimeValue"]["constant"]
        return run.get(value, value) if isinstance(value, str) else value
    raise UserError(
        f"{step}: the backend does not resolve the parameter {name!r}: {source}.", record=step
    )


def _converted(step: specs.Step, name: str, definition: Json, value: Any, has_value: bool) -> Any:
    """``handleParamTypeValidationAndConversion`` in resolve.go."""
    kind = definition["parameterType"]
    if not has_value and definition.get("defaultValue") is None:
        raise _problem(step, name, "has neither a value nor a default")
    if kind == "STRING":
        return to_text(value)
    given = specs.type_of(value)
    if not specs.fits(given, kind):
        raise _problem(step, name, f"is {given}, not {kind}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _problem(step, name, f"is {value}")
    return specs.doubles(value)


def _problem(step: specs.Step, name: str, problem: str) -> UserError:
    return UserError(f"{step.name}: the parameter {name!r} {problem}.", record=step.name)


def _artifact(step: str, name: str, source: Json, done: Producers) -> Json:
    output = source.get("taskOutputArtifact")
    if output is None:
        raise UserError(
            f"{step}: the backend does not resolve the artifact {name}: {source}.", record=step
        )
    artifact = done.output(step, output["producerTask"], "artifacts", output["outputArtifactKey"])
    return {
        **artifact,
        "type": {"instanceSchema": ""},  # the backend returns no types
        # RecordArtifact adds these.
        "metadata": {
            **specs.doubles(artifact["metadata"]),
            "display_name": output["outputArtifactKey"],
            "store_session_info": "{}",
        },
    }
