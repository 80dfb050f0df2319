"""Rules for values that arrive as other values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Component, Pipeline, Task

_PLACEHOLDER = re.compile(r"\{\{\$(\}\}|\.(inputs|outputs)\.(parameters|artifacts)\['[^']+'\])")
_VARIABLE = re.compile(r"\$\$|\$\(([^()]*)\)")
_POD_VARIABLES = ("KFP_POD_NAME", "KFP_POD_UID", "NAMESPACE")
_COMPILE = "backend/src/v2/component/launcher_v2.go compileCmdAndArgs"
_EXPAND = "kubernetes/kubernetes third_party/forked/golang/expansion/expand.go Expand"
_METADATA = "backend/src/v2/metadata/converter.go StructValueToMLMDValue"


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks constants of all tasks, and metadata of importers."""
    for task in pipeline.tasks:
        for name, source in task.inputs("parameters").items():
            if "constant" in source.get("runtimeValue", {}):
                location = f"{task.location}.inputs.parameters.{name}.runtimeValue.constant"
                yield from _constant(source["runtimeValue"]["constant"], location, task)
    for component in pipeline.components.values():
        if component.importer is not None:
            yield from _metadata(component)


def _constant(value: Any, location: str, task: Task) -> Iterator[Finding]:
    definitions = task.component.inputs("parameters") if task.component else {}
    is_text = definitions.get(location.split(".")[-3], {}).get("parameterType") == "STRING"
    if value is None and is_text:  # a driver fails on others: see parameters
        yield Finding(
            "null-constant",
            location,
            "The step gets an empty string: the constant is null.",
            "Remove the parameter, or give it a value.",
            "backend/src/v2/metadata/converter.go PbValueToText",
        )
    if not isinstance(value, str) or task.component is None or task.component.container is None:
        return
    if found := _PLACEHOLDER.search(value):
        yield Finding(
            "placeholder-in-value",
            location,
            f"The step gets another value: the launcher also replaces {found[0]!r} in values.",
            "Remove the placeholder from the value.",
            _COMPILE,
        )
    if variable := _expanded(value, task.component):
        yield Finding(
            "variable-in-value",
            location,
            f"The step gets another value: Kubernetes expands {variable!r} in arguments.",
            "Remove the variable, or pass the value in an environment variable or a file.",
            _EXPAND,
        )


def _expanded(value: str, component: Component) -> str | None:
    assert component.container is not None
    names = {variable.get("name") for variable in component.container.get("env", [])}
    for match in _VARIABLE.finditer(value):
        if match[1] is None or match[1] in names or match[1] in _POD_VARIABLES:
            return match[0]
    return None


def _metadata(component: Component) -> Iterator[Finding]:
    assert component.importer is not None
    for name, value in component.importer.get("metadata", {}).items():
        location = f"{component.executor_location}.importer.metadata.{name}"
        if value is None:
            yield Finding(
                "importer-metadata",
                location,
                "The step crashes: metadata cannot be null.",
                "Remove the value.",
                _METADATA,
            )
        elif isinstance(value, (bool, list, dict)):
            stored = {bool: "as a number", list: 'as {"list": …}'}.get(
                type(value), 'as {"struct": …}'
            )
            yield Finding(
                "importer-metadata",
                location,
                f"The backend silently stores the value {stored}.",
                "Use text or a number.",
                _METADATA,
            )
