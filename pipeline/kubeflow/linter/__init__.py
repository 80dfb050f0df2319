"""Lints compiled pipelines for the open-source Kubeflow Pipelines backend.

The rules port the backend's Go code (kubeflow/pipelines at 7b70c7b95, August 2026). Each finding
names the file and the function. They agree with recorded verdicts of the backend.
"""

from __future__ import annotations

from stagecraft.pipeline.kubeflow.linter import documents
from stagecraft.pipeline.kubeflow.linter.finding import Finding, refusal
from stagecraft.pipeline.kubeflow.linter.pipeline import walk
from stagecraft.pipeline.kubeflow.linter.rules import RULES, argo_tags, platform

__all__ = ["Finding", "check", "check_file", "refusal"]


def check(text: str) -> list[Finding]:
    """Parts that the backend would refuse, drop or crash on. It stops at its first error."""
    file, findings = documents.read(text)
    return [*findings, *check_file(file)]


def check_file(file: documents.File) -> list[Finding]:
    """The findings of parsed documents."""
    if file.pipeline is None:
        return []
    spec, of_pipeline = documents.parse_pipeline(file.pipeline)
    pipeline, missing = walk(spec)
    of_pipeline += missing
    for rule in RULES:
        of_pipeline += rule.check(pipeline)
    findings = [each._replace(location=file.prefix + each.location) for each in of_pipeline]
    if file.platform is not None:
        findings += platform.check(file.platform, pipeline)
        findings += argo_tags.check_texts(file.platform["platforms"], "platforms")
    return findings
