"""Lints compiled pipelines for the open-source Kubeflow Pipelines backend.

The rules are ports of the backend's Go code (kubeflow/pipelines at 7b70c7b95, August 2026). Each
finding names the file and the function. They were not compared with a live cluster.
"""

from stagecraft.pipeline.kubeflow.linter.finding import Finding, refusal
from stagecraft.pipeline.kubeflow.linter.lint import check

__all__ = ["Finding", "check", "refusal"]
