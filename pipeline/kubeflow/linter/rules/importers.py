"""Rules for URIs: of importers, with their type and one output, and of the pipeline root."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline, Task
from stagecraft.pipeline.kubeflow.linter.rules.artifacts import artifact_type

_IMPORTER = "backend/src/v2/component/importer_launcher.go"

_SCHEMES = ("gs://", "s3://", "minio://")
"""The backend also accepts mem://, for its tests."""

_BUCKET = re.compile(r"([a-z][a-z0-9]+:///?)([^/?]+)(/[^?]*)?(\?.+)?")


def _problem_of(uri: str) -> str:
    """Why the backend cannot use a URI; empty: it can. As ParseBucketPathToConfig."""
    found = _BUCKET.fullmatch(uri)
    if found is None:
        return f"{uri!r} is not the URI of a bucket"
    if found[1] not in _SCHEMES:
        return f"{uri!r} is in no supported store ({', '.join(_SCHEMES)})"
    return ""


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks the pipeline root, and the importers of all components with their tasks."""
    yield from _root(pipeline.spec)
    for component, importer, location in pipeline.importers():
        schema = importer.get("typeSchema", {})
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
        tasks = pipeline.users(component)
        for task in tasks:
            yield from _name(task)
        yield from _uri(importer, tasks, f"{location}.artifactUri")
    yield from _buckets(pipeline)


def _name(task: Task) -> Iterator[Finding]:
    """An importer is recorded under ``taskInfo.name``, and looked up by its task's name."""
    name = task.spec.get("taskInfo", {}).get("name", "")
    users = [each for each in task.dag.tasks.values() if _reads(each, task.name)]
    if users and name != task.name:
        yield Finding(
            "importer-name",
            f"{task.location}.taskInfo.name",
            f"The driver of {users[0].location} cannot find the producer {task.name!r}: an "
            f"importer is recorded under taskInfo.name, {name!r}.",
            "Give taskInfo.name the name of the task.",
            f"{_IMPORTER} Execute",
        )


def _uri(importer: dict[str, Any], tasks: list[Task], location: str) -> Iterator[Finding]:
    uri = importer.get("artifactUri", {})
    if "constant" in uri:
        value = uri["constant"]
        if not isinstance(value, str) or not value:
            yield _no_uri(location, "the URI is empty, or not text")
        elif value.startswith("oci://"):
            yield from _oci(importer, value, location)
        elif problem := _problem_of(value):
            yield _no_uri(location, problem)
        elif not value.partition("://")[2].partition("/")[2]:
            yield _no_uri(location, f"{value!r} is a bucket alone, without a key")
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


def _oci(importer: dict[str, Any], value: str, location: str) -> Iterator[Finding]:
    if importer.get("downloadToWorkspace"):
        yield _no_uri(location, f"{value!r} cannot be downloaded to a workspace")
    elif "system.Model" not in str(importer.get("typeSchema")):
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


def _buckets(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks that consumers of an import can open its bucket.

    The launcher opens the bucket of the pipeline's root with keys of its own, and another bucket
    with the container's environment (``fetchNonDefaultBuckets`` in launcher_v2.go).
    """
    root = specs.root(pipeline.spec)
    for task in pipeline.tasks:
        component = task.component
        if component is None or component.importer is None:
            continue
        uri = component.importer.get("artifactUri", {}).get("constant", "")
        if not isinstance(uri, str) or not uri.startswith("minio://") or _same_bucket(uri, root):
            continue
        for user in task.dag.tasks.values():
            if _reads(user, task.name) and (problem := _environment_problem(user)):
                yield Finding(
                    "importer-bucket",
                    f"{user.location}.inputs.artifacts",
                    f"The step fails: {uri} is in another bucket than the pipeline's root. The "
                    "launcher opens this bucket with the container's environment, which "
                    f"{problem}.",
                    "Use the bucket of the root, or give the container AWS_ACCESS_KEY_ID, "
                    "AWS_SECRET_ACCESS_KEY and an AWS_ENDPOINT_URL with an IP address.",
                    "backend/src/v2/component/launcher_v2.go fetchNonDefaultBuckets",
                )


def _same_bucket(uri: str, root: str) -> bool:
    return uri.split("/")[:3] == root.split("/")[:3]


def _reads(task: Task, producer: str) -> bool:
    sources = task.inputs("artifacts").values()
    return any(
        each.get("taskOutputArtifact", {}).get("producerTask") == producer for each in sources
    )


def _environment_problem(task: Task) -> str:
    if task.component is None or task.component.container is None:
        return ""
    env = {each["name"]: each.get("value", "") for each in task.component.container.get("env", [])}
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    if endpoint is None:
        return "names no AWS_ENDPOINT_URL"
    host = urllib.parse.urlsplit(endpoint).hostname or ""
    if not re.fullmatch(r"[0-9.]+|[0-9a-f:]+", host):
        return f"makes it ask bucket.{host}, because {host} is not an IP address"
    return ""


def _root(spec: dict[str, Any]) -> Iterator[Finding]:
    """Checks the root of a spec, which the user interface copies to each run."""
    root = spec.get("defaultPipelineRoot", "")
    if root and (found := _problem_of(root)):
        yield Finding(
            "pipeline-root",
            "defaultPipelineRoot",
            f"A run with this root fails at its first driver: {found}.",
            "Use a gs://, s3:// or minio:// URI, or remove it to use the cluster's root.",
            "backend/src/v2/objectstore/config.go ParseBucketPathToConfig",
        )
