"""The settings of a pipeline: the tree, its presets, and their files and options."""

from stagecraft.pipeline.beam.settings import BeamSettings
from stagecraft.pipeline.settings.data import DataSettings
from stagecraft.pipeline.settings.strict_yaml import SettingsError
from stagecraft.pipeline.settings.tree import (
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
