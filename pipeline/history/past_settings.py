"""The settings of a past run, from ML Metadata: ``train.epochs`` -> value.

The TrainingReport's execution has all settings, and so do the notes of the run. Without both, each
execution has the settings of its own component.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from stagecraft.common import secrets
from stagecraft.pipeline import settings as pipeline_settings
from stagecraft.pipeline.settings import DataSettings, PipelineSettings
from stagecraft.pipeline.settings.data import EXAMPLE_GEN
from stagecraft.trainer_module.settings import TrainingSettings

Flat = dict[str, Any]
"""Dotted name -> value."""

Properties = Mapping[str, Any]


def known(executions: Mapping[str, Properties], noted: str = "") -> Flat:
    """The settings of a run.

    Args:
        executions: node id -> properties of its execution.
        noted: YAML of the settings that differ from the defaults, from the notes of the run.
    """
    settings: Flat = {}
    if text := executions.get("TrainingReport", {}).get("settings") or noted:
        # Earlier versions of Stagecraft recorded secrets.
        settings = defaults() | flat(pipeline_settings.without_secrets(yaml.safe_load(text)))
    if EXAMPLE_GEN in executions:
        settings |= _data(executions[EXAMPLE_GEN])
    if "Trainer" in executions:
        settings |= _training(executions["Trainer"])
    left: Flat = secrets.redact_tree(settings)
    return left


def defaults() -> Flat:
    """The default of every setting that a run records."""
    return flat(pipeline_settings.recorded(PipelineSettings()))


def base(pipeline: str) -> tuple[str, Flat]:
    """The preset with the pipeline's name, or ``defaults`` if there is none; and its settings."""
    for preset in pipeline_settings.presets():
        if preset.replace("_", "-") != pipeline:  # a pipeline's name has no underscore
            continue
        return preset, flat(pipeline_settings.recorded(pipeline_settings.load(preset)))
    return "defaults", defaults()


def changed(settings: Flat, base: Flat) -> Flat:
    """The settings that differ from ``base``, except the pipeline's name."""
    return {
        name: value
        for name, value in sorted(settings.items())
        if value != base.get(name) and name != "name"
    }


def flat(
    tree: Mapping[str, Any], model: type[BaseModel] = PipelineSettings, prefix: str = ""
) -> Flat:
    """A tree of settings under dotted names; a mapping that is one setting stays whole."""
    leaves: Flat = {}
    for name, value in tree.items():
        field = model.model_fields.get(name)
        kind = field.annotation if field else None
        if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, BaseModel):
            leaves |= flat(value, kind, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value
    return leaves


def _data(properties: Properties) -> Flat:
    settings = {
        f"data.{name}": properties[name] for name in DataSettings.model_fields if name in properties
    }
    dataset, _, label = str(properties.get("dataset", "")).partition("_")
    return settings | {"data.dataset": dataset, "data.label": label or "fine"}


def _training(properties: Properties) -> Flat:
    """ML Metadata has no property for a field that is None, and numbers for booleans."""
    settings, unset = {}, defaults()
    for section, outer in TrainingSettings.model_fields.items():
        for name, field in outer.annotation.model_fields.items():  # type: ignore[union-attr]
            value = properties.get(f"{section}_{name}")
            if field.annotation is bool and value is not None:
                value = bool(value)
            if value is None and field.default in (None, (), {}):  # ML Metadata leaves it out
                settings[f"{section}.{name}"] = unset[f"{section}.{name}"]
            elif value is not None:
                settings[f"{section}.{name}"] = TrainingSettings.parsed(f"{section}_{name}", value)
    return settings
