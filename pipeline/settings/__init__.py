"""The settings of a pipeline: the whole tree, its presets, and how files and options are read."""

from stagecraft.pipeline.settings.errors import SettingsError
from stagecraft.pipeline.settings.tree import (
    BeamSettings,
    DataSettings,
    EvaluateSettings,
    ParitySettings,
    PipelineSettings,
    PushSettings,
    ReportSettings,
    TransformSettings,
    changes_as_yaml,
    load,
    presets,
    recorded,
    without_secrets,
)

__all__ = [
    "BeamSettings",
    "DataSettings",
    "EvaluateSettings",
    "ParitySettings",
    "PipelineSettings",
    "PushSettings",
    "ReportSettings",
    "SettingsError",
    "TransformSettings",
    "changes_as_yaml",
    "load",
    "presets",
    "recorded",
    "without_secrets",
]
