"""Rules for parameters: types, and values of required ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import ROOT, Pipeline, Task
from stagecraft.pipeline.kubeflow.linter.rules.sources import parameter_source

_RESOLVE = "backend/src/v2/driver/resolve.go resolveInputs"
_VALIDATE = "backend/src/apiserver/template/v2_template.go validatePipelineJobInputs"
_UNSPECIFIED = "PARAMETER_TYPE_ENUM_UNSPECIFIED"


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks the parameters of the root and of all tasks."""
    if ROOT in pipeline.components:
        yield from _root(pipeline)
    for task in pipeline.tasks:
        yield from _set_parameters(task)
        yield from _missing_parameters(task)


def _root(pipeline: Pipeline) -> Iterator[Finding]:
    for name, definition in pipeline.components[ROOT].inputs("parameters").items():
        location = f"root.inputDefinitions.parameters.{name}"
        wanted = definition.get("parameterType", _UNSPECIFIED)
        default = definition.get("defaultValue")
        if wanted == _UNSPECIFIED:
            yield Finding(
                "parameter-type",
                location,
                f"A run that sets this parameter is refused: the parameter is of type {wanted}.",
                "Give it a parameterType, such as STRING.",
                _VALIDATE,
            )
        elif default is not None and not specs.fits(specs.type_of(default), wanted):
            yield Finding(
                "parameter-type",
                f"{location}.defaultValue",
                "The drivers of the tasks that take this parameter fail: the type of the default "
                f"is {specs.type_of(default)}, but the type of the parameter is {wanted}.",
                "Give a default of that type.",
                _RESOLVE,
            )


def _set_parameters(task: Task) -> Iterator[Finding]:
    definitions = task.component.inputs("parameters") if task.component else {}
    for name, source in task.inputs("parameters").items():
        location = f"{task.location}.inputs.parameters.{name}"
        problems = list(parameter_source(source, task, location))
        yield from problems
        definition = definitions.get(name)
        if problems or definition is None or definition.get("parameterType") == specs.TASK_CONFIG:
            continue
        if source.get("parameterExpressionSelector"):
            continue  # its type is known at run time
        yield from _of_type(task, location, source, definition)


def _of_type(
    task: Task, location: str, source: dict[str, Any], definition: dict[str, Any]
) -> Iterator[Finding]:
    assert task.component is not None
    wanted = definition.get("parameterType", _UNSPECIFIED)
    if _may_be_null(task, source) and not definition.get("isOptional"):
        yield Finding(
            "null-parameter",
            location,
            "If a run does not set the pipeline's optional parameter, the driver of the task "
            "fails: the value is null, and the task requires a value.",
            "Give the pipeline's parameter a defaultValue, or make the task's parameter optional.",
            _RESOLVE,
        )
    found = _found(task, source)
    if wanted == _UNSPECIFIED:
        yield Finding(
            "parameter-type",
            location,
            "The driver of the task fails: its component defines the parameter without a "
            "parameterType, so no value matches.",
            f"Give {task.component.location} a parameterType; the backend does not read the field "
            "type of schema 2.0.",
            _RESOLVE,
        )
    elif found is not None and not specs.fits(found, wanted):
        yield Finding(
            "parameter-type",
            location,
            f"The driver of the task fails: the type of the value is {found}, but the type of the "
            f"parameter is {wanted}.",
            "Give a value of that type.",
            _RESOLVE,
        )
    literals = definition.get("literals", [])
    if literals and "runtimeValue" in source:
        constant = source["runtimeValue"]["constant"]
        if constant not in literals:
            yield Finding(
                "parameter-literal",
                location,
                f"The driver of the task fails: {constant!r} is none of {literals}.",
                "Give one of these values.",
                "backend/src/common/util/validate_literal.go ValidateLiteralParameter",
            )


def _missing_parameters(task: Task) -> Iterator[Finding]:
    # An importer has no driver, which resolves inputs.
    if task.component is None or task.component.importer is not None:
        return
    iterator = task.spec.get("parameterIterator", {})
    is_dag = "dag" in task.component.spec
    for name, definition in task.component.inputs("parameters").items():
        wanted = definition.get("parameterType", _UNSPECIFIED)
        if name in task.inputs("parameters") or definition.get("isOptional"):
            continue
        if name == iterator.get("itemInput") or wanted == specs.TASK_CONFIG:
            continue
        remedy = f"Give the task a value, or set isOptional in {task.component.location}"
        remedy += " and a default." if is_dag else "."
        if definition.get("defaultValue") is None:
            problem = "The driver of the task fails: the parameter has no value, and no default."
        elif wanted != "STRING":
            problem = (
                "The driver of the task fails: the backend ignores the default of a required "
                "parameter."
            )
        else:
            problem = (
                "The step gets an empty string instead of the default, because the parameter is "
                "not optional."
            )
            remedy = f"Set isOptional in {task.component.location}, or give the task a value."
        location = f"{task.location}.inputs.parameters.{name}"
        yield Finding("missing-parameter", location, problem, remedy, _RESOLVE)


def _may_be_null(task: Task, source: dict[str, Any]) -> bool:
    """Whether the source is an optional parameter of the pipeline without a default."""
    definitions = task.dag.component.inputs("parameters")
    definition = definitions.get(source.get("componentInputParameter", ""), {})
    is_root = task.dag.component.name == ROOT
    return is_root and bool(definition.get("isOptional")) and definition.get("defaultValue") is None


def _found(task: Task, source: dict[str, Any]) -> str | None:
    """The type of a source's value; None: unknown."""
    if "runtimeValue" in source:
        return specs.type_of(source["runtimeValue"]["constant"])
    if "componentInputParameter" in source:
        definitions = task.dag.component.inputs("parameters")
        found = definitions[source["componentInputParameter"]].get("parameterType")
    elif "taskOutputParameter" in source:
        output = source["taskOutputParameter"]
        producer = task.dag.tasks[output["producerTask"]].component
        if producer is None:
            return None
        found = producer.outputs("parameters")[output["outputParameterKey"]].get("parameterType")
    else:
        return "STRUCT"
    return None if found == _UNSPECIFIED else found
