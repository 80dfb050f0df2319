"""Rules for values that arrive as other values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline, Task

_PLACEHOLDER = re.compile(r"\{\{\$(\}\}|\.(inputs|outputs)\.(parameters|artifacts)\['[^']+'\])")
VARIABLE = re.compile(r"\$\$|\$\(([^()]*)\)")
"""A variable that Kubernetes expands in arguments, or an escaped dollar sign."""

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
    for _, importer, location in pipeline.importers():
        yield from _metadata(importer.get("metadata", {}), f"{location}.metadata")


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
    if variable := _expanded(value, task.component.container):
        yield Finding(
            "variable-in-value",
            location,
            f"The step gets another value: Kubernetes expands {variable!r} in arguments.",
            "Remove the variable, or pass the value in an environment variable or a file.",
            _EXPAND,
        )


def _expanded(value: str, container: dict[str, Any]) -> str | None:
    names = {variable.get("name") for variable in container.get("env", [])}
    for match in VARIABLE.finditer(value):
        if match[1] is None or match[1] in names or match[1] in _POD_VARIABLES:
            return match[0]
    return None


def _metadata(metadata: dict[str, Any], location: str) -> Iterator[Finding]:
    for name, value in metadata.items():
        if value is None:
            yield Finding(
                "importer-metadata",
                f"{location}.{name}",
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
                f"{location}.{name}",
                f"The backend silently stores the value {stored}.",
                "Use text or a number.",
                _METADATA,
            )
