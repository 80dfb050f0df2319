"""Rules for importers: URI, type, and one output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Component, Pipeline, Task
from stagecraft.pipeline.kubeflow.linter.rules import pipeline_root
from stagecraft.pipeline.kubeflow.linter.rules.artifacts import artifact_type

_IMPORTER = "backend/src/v2/component/importer_launcher.go"


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks the importers of all components, and their tasks."""
    for component in pipeline.components.values():
        if component.importer is None:
            continue
        location = f"{component.executor_location}.importer"
        schema = component.importer.get("typeSchema", {})
        yield from artifact_type(schema, f"{location}.typeSchema", "The step crashes")
        count = len(component.outputs("artifacts"))
        if count != 1:
            yield Finding(
                "importer-output",
                f"{component.location}.outputDefinitions.artifacts",
                f"The step crashes: an importer has one output artifact, not {count}.",
                "Define one output artifact.",
                f"{_IMPORTER} getOutPutArtifactName",
            )
        tasks = [task for task in pipeline.tasks if task.component is component]
        yield from _uri(component, component.importer.get("artifactUri", {}), tasks, location)


def _uri(
    component: Component, uri: dict[str, Any], tasks: list[Task], location: str
) -> Iterator[Finding]:
    location = f"{location}.artifactUri"
    if "constant" in uri:
        value = uri["constant"]
        if not isinstance(value, str) or not value:
            yield _no_uri(location, "the URI is empty, or not text")
        elif value.startswith("oci://"):
            yield from _oci(component, value, location)
        elif problem := pipeline_root.problem(value):
            yield _no_uri(location, problem)
    elif uri.get("runtimeParameter"):
        name = uri["runtimeParameter"]
        for task in tasks:
            source = task.inputs("parameters").get(name)
            if source is None:
                yield _no_uri(location, f"{task.location} gets no parameter {name!r}")
            elif "componentInputParameter" not in source:
                yield _no_uri(
                    location, f"{task.location} does not take {name!r} from its DAG's inputs"
                )
    else:
        yield _no_uri(location, "there is no URI (constantValue is not read)")


def _oci(component: Component, value: str, location: str) -> Iterator[Finding]:
    assert component.importer is not None
    if component.importer.get("downloadToWorkspace"):
        yield _no_uri(location, f"{value!r} cannot be downloaded to a workspace")
    elif "system.Model" not in str(component.importer.get("typeSchema")):
        yield _no_uri(location, f"{value!r} must be a system.Model")


def _no_uri(location: str, problem: str) -> Finding:
    return Finding(
        "importer-uri",
        location,
        f"The step crashes: {problem}.",
        "Give artifactUri.constant a gs://, s3:// or minio:// URI, or artifactUri.runtimeParameter "
        "a parameter that the task takes from the inputs of its DAG.",
        f"{_IMPORTER} ImportSpecToMLMDArtifact",
    )
