"""Settings in words: as YAML, and one by one."""

from __future__ import annotations

import types
import typing

import yaml
from pydantic import BaseModel

from stagecraft.common import secrets
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS
from stagecraft.pipeline.beam.runner import RUNNERS
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module import registries

_REGISTRIES = registries.BY_SETTING | {each.setting: each for each in (CLUSTER_JOBS, RUNNERS)}


def as_yaml(settings: PipelineSettings) -> str:
    """All settings, as a file that ``--config`` takes once the secrets are put back in."""
    tree = secrets.redact_tree(settings.model_dump(mode="json"))
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).rstrip()


class Setting(typing.NamedTuple):
    """One setting in words."""

    name: str
    """Dotted name, as ``--set`` takes it: ``train.steps``."""

    kind: str
    default: str
    meaning: str
    entries: dict[str, str]
    """The names that the setting accepts: name -> description; empty: its value is not a name."""


def described(model: type[BaseModel] = PipelineSettings, prefix: str = "") -> list[Setting]:
    """All settings, in the order of the tree."""
    settings: list[Setting] = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            settings += described(field.annotation, f"{prefix}{name}.")
        else:
            default = yaml.safe_dump(field.default, default_flow_style=True).partition("\n")[0]
            kind = _type_name(field.annotation)
            registry = _REGISTRIES.get(f"{prefix}{name}")
            entries = (
                {each.name: each.description for each in registry.entries()} if registry else {}
            )
            meaning = field.description or ""
            settings.append(Setting(f"{prefix}{name}", kind, default, meaning, entries))
    return settings


def paragraphs() -> list[str]:
    """A paragraph for each setting: name, type, default, meaning, names and what they mean."""
    return [
        "\n    ".join(
            [
                f"{setting.name}  ({setting.kind}, default {setting.default})",
                setting.meaning,
                *(f"{name}: {meaning}" for name, meaning in setting.entries.items()),
            ]
        )
        for setting in described()
    ]


def _type_name(annotation: typing.Any) -> str:
    """``integer``, ``1f1b | gpipe``, ``text or null``: as people write it in YAML."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_name(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if len(annotation.model_fields) > 5:
            return annotation.__name__
        return "{" + ", ".join(annotation.model_fields) + "}"
    if origin is dict:
        return f"map of {_type_name(arguments[0])} to {_type_name(arguments[1])}"
    if origin is typing.Literal:
        return " | ".join(str(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_name(argument) for argument in arguments)
    if origin is tuple:
        return f"list of {_type_name(arguments[0])}"
    names = {str: "text", int: "integer", float: "number", bool: "true | false"}
    names[typing.Any] = "value"
    return names.get(annotation, "null" if annotation is type(None) else str(annotation))
