"""Schemas of users' artifact types, which TFX's compiler writes without their properties."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import yaml
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.types import Artifact
from tfx.types.artifact import PropertyType

_NAMES = {
    PropertyType.INT: "integer",
    PropertyType.FLOAT: "number",
    PropertyType.STRING: "string",
    PropertyType.BOOLEAN: "boolean",
}
"""Types of OpenAPI; all others are objects."""


@contextlib.contextmanager
def with_properties() -> Iterator[None]:
    """In this block, TFX compiles types with ``PROPERTIES`` of their own."""
    original = compiler_utils.get_artifact_schema

    def get_artifact_schema(artifact_type: type[Artifact]) -> str:
        text: str = original(artifact_type)
        schema = yaml.safe_load(text)
        own = {
            name: {"type": _NAMES.get(each.type, "object")}
            for name, each in (artifact_type.PROPERTIES or {}).items()
            if name not in schema.get("properties", {})
        }
        if not own:
            return text
        schema["properties"] = schema.get("properties", {}) | own
        return str(yaml.dump(schema, sort_keys=False))

    compiler_utils.get_artifact_schema = get_artifact_schema
    try:
        yield
    finally:
        compiler_utils.get_artifact_schema = original
