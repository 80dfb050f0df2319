"""Rules for artifacts: sources, types, and outputs of DAGs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Dag, Pipeline
from stagecraft.pipeline.kubeflow.linter.rules.sources import artifact_source

_SCHEMA = "backend/src/v2/component/launcher_v2.go getArtifactSchema"
_TITLE = "backend/src/v2/metadata/client.go SchemaToArtifactType"

_AT_THE_END = "The step crashes after its work is done, when its outputs are recorded"


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks the artifacts of all tasks and components."""
    for task in pipeline.tasks:
        for name, source in task.inputs("artifacts").items():
            yield from artifact_source(source, task, f"{task.location}.inputs.artifacts.{name}")
    for component, _, _ in pipeline.containers():
        outputs = f"{component.location}.outputDefinitions.artifacts"
        for name, definition in component.outputs("artifacts").items():
            schema = definition.get("artifactType", {})
            yield from artifact_type(schema, f"{outputs}.{name}.artifactType", _AT_THE_END)
    for dag in pipeline.dags:
        yield from _dag_outputs(dag)


def artifact_type(schema: dict[str, Any], location: str, when: str) -> Iterator[Finding]:
    """Checks an ArtifactTypeSchema; ``when`` begins the problem's sentence.

    Any title passes: TFX's pattern for custom types is Vertex AI's.
    """
    source = _TITLE
    if "schemaTitle" in schema:
        problem = "" if schema["schemaTitle"] else "schemaTitle is empty"
    elif "instanceSchema" in schema:
        try:
            content = yaml.safe_load(schema["instanceSchema"])
        except yaml.YAMLError:
            problem = "instanceSchema is not YAML"
        else:
            titled = isinstance(content, dict) and content.get("title")
            problem = "" if titled else "instanceSchema has no title"
    else:
        source = _SCHEMA
        problem = "schemaUri is not supported" if "schemaUri" in schema else "the type is missing"
    if problem:
        yield Finding(
            "artifact-type",
            location,
            f"{when}: {problem}.",
            "Give it a schemaTitle, such as system.Artifact, or an instanceSchema with a title.",
            source,
        )


def _dag_outputs(dag: Dag) -> Iterator[Finding]:
    outputs = dag.component.spec["dag"].get("outputs", {})
    for name, output in outputs.get("artifacts", {}).items():
        for selector in output.get("artifactSelectors", []):
            key = selector.get("outputArtifactKey", "")
            yield from _selected(dag, "artifacts", name, selector.get("producerSubtask", ""), key)
    for name, output in outputs.get("parameters", {}).items():
        one = output.get("valueFromParameter")
        several = output.get("valueFromOneof", {}).get("parameterSelectors", [])
        for selector in [one] if one else several:
            key = selector.get("outputParameterKey", "")
            yield from _selected(dag, "parameters", name, selector.get("producerSubtask", ""), key)


def _selected(dag: Dag, kind: str, name: str, subtask: str, key: str) -> Iterator[Finding]:
    task = dag.tasks.get(subtask)
    if task is None:
        problem = f"it has no task {subtask!r}"
    elif task.component is not None and key not in task.component.outputs(kind):
        problem = f"its task {subtask!r} has no output {key!r}"
    else:
        return
    yield Finding(
        "dag-output",
        f"{dag.component.location}.dag.outputs.{kind}.{name}",
        f"The driver of a task that takes this output of the DAG fails: {problem}.",
        "Name a task of the DAG, and one of its outputs.",
        "backend/src/v2/driver/resolve.go GetProducerTask",
    )
