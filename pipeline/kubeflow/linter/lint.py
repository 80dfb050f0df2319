"""The check of a whole file."""

from __future__ import annotations

from stagecraft.pipeline.kubeflow.linter import (
    artifacts,
    conditions,
    containers,
    document,
    importers,
    ordering,
    parameters,
    resources,
    stores,
    tasks,
    tfx,
)
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import walk
from stagecraft.pipeline.kubeflow.linter.platform import platform

_RULES = (tasks, ordering, parameters, artifacts, conditions, containers, resources, importers, tfx)


def check(text: str) -> list[Finding]:
    """What the open-source Kubeflow Pipelines backend would refuse, drop or crash on.

    Goes on past the first error, which the backend does not: what one part of the file hides is
    told with it.

    Args:
        text: The content of a compiled pipeline file.

    Returns:
        The findings: of the documents, of the pipeline, of the platform; none if it is accepted.
    """
    file, findings = document.read(text)
    return [*findings, *check_file(file)]


def check_file(file: document.File) -> list[Finding]:
    """The same for documents that are read already."""
    if file.pipeline is None:
        return []
    spec, inside = document.parse_pipeline(file.pipeline)
    pipeline, missing = walk(spec)
    inside += [*stores.check(spec), *missing]
    for rule in _RULES:
        inside += rule.check(pipeline)
    findings = [found._replace(where=file.prefix + found.where) for found in inside]
    if file.platform is not None:
        findings += platform.check(file.platform, pipeline)
    return findings
