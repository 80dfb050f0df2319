"""Gives an executor the values that TFX's local operator gives it.

TFX's entrypoint for Vertex reads no ``ValueArtifact``, and passes each parameter as the compiled
pipeline has it: a bool as a number, a list or dict as JSON.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

from tfx.dsl.component.experimental import json_compat
from tfx.dsl.component.experimental.annotations import Parameter
from tfx.dsl.io import fileio
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as tfx_utils
from tfx.types.value_artifact import ValueArtifact
from tfx.utils import import_utils

Artifacts = dict[str, list[Any]]


@contextlib.contextmanager
def restored(executor_class: str) -> Iterator[None]:
    """In this block, TFX's entrypoint reads values, and restores types of parameters.

    Args:
        executor_class: dotted path of the executor that runs.
    """
    types = _parameter_types(import_utils.import_class_by_path(executor_class))
    artifacts, properties = tfx_utils.parse_raw_artifact_dict, tfx_utils.parse_execution_properties

    def read(*args: Any, **kwargs: Any) -> Artifacts:
        found: Artifacts = artifacts(*args, **kwargs)
        for values in found.values():
            for value in values:
                if isinstance(value, ValueArtifact) and fileio.exists(value.uri):
                    value.read()
        return found

    def convert(*args: Any, **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = properties(*args, **kwargs)
        return {name: types.get(name, _unchanged)(value) for name, value in found.items()}

    tfx_utils.parse_raw_artifact_dict = read
    tfx_utils.parse_execution_properties = convert
    try:
        yield
    finally:
        tfx_utils.parse_raw_artifact_dict = artifacts
        tfx_utils.parse_execution_properties = properties


def _parameter_types(executor: type) -> dict[str, Callable[[Any], Any]]:
    """Conversions of the parameters of a function with ``@component``, by name."""
    function = getattr(executor, "_FUNCTION", None)
    if function is None:
        return {}
    conversions: dict[str, Callable[[Any], Any]] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if not isinstance(parameter.annotation, Parameter):
            continue  # an artifact, or its value
        kind = parameter.annotation.type
        if kind is bool:
            conversions[name] = bool
        elif json_compat.is_json_compatible(kind):
            conversions[name] = _from_json
    return conversions


def _from_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _unchanged(value: Any) -> Any:
    return value
