"""What the backend's launcher gives a step: its executor input, in JSON."""

from __future__ import annotations

from typing import Any

Artifacts = dict[str, dict[str, Any]]


def artifact(uri: str, type_name: str, **more: Any) -> dict[str, Any]:
    """An artifact of a type, such as ``tfx.Model``."""
    return {"uri": uri, "type": {"instanceSchema": schema(type_name)}, **more}


def schema(type_name: str) -> str:
    return f"title: {type_name}\ntype: object\n"


def executor_input(
    output_file: object,
    parameters: dict[str, Any] | None = None,
    inputs: Artifacts | None = None,
    outputs: Artifacts | None = None,
) -> dict[str, Any]:
    """One artifact for each key of ``inputs`` and of ``outputs``."""

    def lists(artifacts: Artifacts | None) -> dict[str, Any]:
        return {key: {"artifacts": [one]} for key, one in (artifacts or {}).items()}

    return {
        "inputs": {"parameterValues": parameters or {}, "artifacts": lists(inputs)},
        "outputs": {"artifacts": lists(outputs), "outputFile": str(output_file)},
    }
