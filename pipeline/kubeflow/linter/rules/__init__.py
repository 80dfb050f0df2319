"""The rules of the backend: what it refuses, drops or crashes on. Each module checks one part.

``documents`` and ``pipeline``, one folder up, refuse what cannot be read, or is no graph.
"""

from stagecraft.pipeline.kubeflow.linter.rules import (
    argo_tags,
    artifacts,
    conditions,
    containers,
    dependencies,
    importers,
    parameters,
    platform,
    resources,
    tasks,
    tfx_entrypoint,
    values,
)

RULES = (
    importers,
    tasks,
    dependencies,
    parameters,
    artifacts,
    conditions,
    containers,
    resources,
    tfx_entrypoint,
    argo_tags,
    values,
)
"""Each has ``check``, from a pipeline to findings; ``platform`` takes the second document, too."""

__all__ = ["RULES", "argo_tags", "platform"]
