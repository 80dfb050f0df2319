"""Rules for the platform document: Kubernetes settings of each executor's pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline
from stagecraft.pipeline.kubeflow.linter.proto.kubernetes_messages import KUBERNETES
from stagecraft.pipeline.kubeflow.linter.proto.strict import Reader
from stagecraft.pipeline.kubeflow.linter.rules.platform import names, pod_spec, secrets_and_volumes

_IS_PLATFORM = "backend/src/apiserver/template/v2_template.go IsPlatformSpecWithKubernetesConfig"
_ADD = "backend/src/v2/compiler/argocompiler/spec_patch.go unmarshalKubernetesExecutorConfig"
_UNREAD = {
    "enabledSharedMemory": "Use emptyDirMounts with medium: Memory at /dev/shm.",
    "podAffinity": "Use nodeAffinity or nodeSelector.",
}


def check(document: dict[str, Any], pipeline: Pipeline) -> Iterator[Finding]:
    """Checks a platform document."""
    reader = Reader(KUBERNETES)
    spec = reader.read("PlatformSpec", document)
    for wrong in reader.wrong:
        yield Finding(
            "platform-field",
            wrong.location,
            f"The backend silently ignores the whole platform document: {wrong.problem}.",
            "Remove the field." if wrong.unknown else "Use the type of pipeline_spec.proto.",
            _IS_PLATFORM,
        )
    kubernetes = spec.get("platforms", {}).get("kubernetes", {})
    for label, settings in kubernetes.get("deploymentSpec", {}).get("executors", {}).items():
        location = f"platforms.kubernetes.deploymentSpec.executors.{label}"
        yield from _executor(label, settings, location, pipeline)


def _executor(
    label: str, settings: dict[str, Any], location: str, pipeline: Pipeline
) -> Iterator[Finding]:
    components = [each for each in pipeline.components.values() if each.label == label]
    if not components:
        yield Finding(
            "platform-executor",
            location,
            f"The backend silently ignores it: no used component has the executor {label!r}.",
            f"Name one of: {', '.join(sorted(pipeline.executors)) or 'none exists'}.",
            "backend/src/v2/compiler/visitor.go dfs",
        )
    elif all(component.importer is not None for component in components):
        yield Finding(
            "platform-ignored",
            location,
            "The backend silently ignores it: the pod of an importer has no settings.",
            "Remove it.",
            "backend/src/v2/compiler/argocompiler/importer.go importerTask",
        )
    reader = Reader(KUBERNETES)
    config = reader.read("KubernetesExecutorConfig", settings, location)
    for wrong in reader.wrong:
        yield Finding(
            "platform-field",
            wrong.location,
            f"The run is refused: {wrong.problem}.",
            "Correct the field's name, or remove the field."
            if wrong.unknown
            else "Use the type of kubernetes_executor_config.proto.",
            _ADD,
        )
    for name, remedy in _UNREAD.items():
        if name in config:
            yield Finding(
                "platform-ignored",
                f"{location}.{name}",
                "The backend silently ignores it: no code of the backend reads it.",
                remedy,
                "kubernetes_platform/proto/kubernetes_executor_config.proto "
                "(nothing under backend/src reads it)",
            )
    users = [task for task in pipeline.tasks if task.component in components]
    yield from secrets_and_volumes.check(config, location, users)
    yield from pod_spec.check(config, location)
    yield from names.check(config, location)
