"""The settings of a training as typed execution properties, such as ``train_batch_size``.

Trainer and ParityGate share these properties and inputs.
"""

from __future__ import annotations

import types as python_types
import typing
from typing import Any

from pydantic import ValidationError
from tfx.types import component_spec, standard_artifacts

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.settings import TrainingSettings

INPUTS = {
    "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
    "transform_graph": component_spec.ChannelParameter(type=standard_artifacts.TransformGraph),
    "schema": component_spec.ChannelParameter(type=standard_artifacts.Schema),
}


WEIGHTS_FINGERPRINT = "initial_weights_fingerprint"
"""Fingerprint of ``train.initial_weights`` when the pipeline was made; absent if unknown."""


def parameters() -> dict[str, component_spec.ExecutionParameter]:
    """Fingerprints, and all fields of the settings, such as ``train_batch_size: int``."""
    result = {
        "code_fingerprint": component_spec.ExecutionParameter(type=str),
        WEIGHTS_FINGERPRINT: component_spec.ExecutionParameter(type=str, optional=True),
    }
    for section, outer in TrainingSettings.model_fields.items():
        for name, field in outer.annotation.model_fields.items():  # type: ignore[union-attr]
            primitive, optional = _primitive(field.annotation)
            result[f"{section}_{name}"] = component_spec.ExecutionParameter(
                type=primitive, optional=optional
            )
    return result


def read(exec_properties: dict[str, Any], component: str) -> TrainingSettings:
    """The settings among a component's execution properties.

    Raises:
        UserError: a setting is invalid, which is possible for a runtime parameter.
    """
    sections = tuple(f"{section}_" for section in TrainingSettings.model_fields)
    flat = {key: value for key, value in exec_properties.items() if key.startswith(sections)}
    # A runtime parameter always has a value: 0 means None. Steps override epochs.
    if flat.get("train_steps"):
        flat.pop("train_epochs", None)
    flat = {
        key: value
        for key, value in flat.items()
        if value or key not in ("train_steps", "train_epochs")
    }
    try:
        return TrainingSettings.from_flat(flat)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()
        ]
        setting = ".".join(map(str, error.errors()[0]["loc"]))
        raise UserError(f"{component}: {'; '.join(problems)}", setting=setting) from None


def _primitive(annotation: Any) -> tuple[type, bool]:
    """The type that ML Metadata stores a field as, and whether the field may be None."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return type(arguments[0]), False
    if origin in (typing.Union, python_types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return _primitive(inner[0])[0], len(inner) < len(arguments)
    return (int if annotation is bool else annotation), False
