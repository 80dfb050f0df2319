"""Ports rules of the backend's Go code (kubeflow/pipelines at 7b70c7b95, August 2026)."""

from stagecraft.pipeline.kubeflow.linter.finding import Finding, refusal
from stagecraft.pipeline.kubeflow.linter.lint import check

__all__ = ["Finding", "check", "refusal"]
