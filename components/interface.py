"""Interfaces of components and executors: parameters, channels and artifacts by name."""

from __future__ import annotations

from tfx.types import artifact
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

Artifacts = dict[str, list[artifact.Artifact]]
"""Inputs or outputs of an execution, by their keys."""


def parameters(*, optional: bool = False, **kinds: type) -> dict[str, ExecutionParameter]:
    """Execution parameters of these types."""
    return {name: ExecutionParameter(type=kind, optional=optional) for name, kind in kinds.items()}


def channels(
    *, optional: bool = False, **kinds: type[artifact.Artifact]
) -> dict[str, ChannelParameter]:
    """Inputs or outputs of these types of artifacts."""
    return {name: ChannelParameter(type=kind, optional=optional) for name, kind in kinds.items()}
