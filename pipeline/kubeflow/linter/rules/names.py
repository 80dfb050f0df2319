"""Rules for names and numbers that Kubernetes validates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stagecraft.common import kubernetes_syntax
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline

_POD = "kubernetes/kubernetes pkg/apis/core/validation/validation.go ValidatePodSpec"
_VOLUMES = (
    ("emptyDirMounts", "volumeName"),
    ("genericEphemeralVolume", "volumeName"),
    ("pvcMount", "constant"),
)
"""Fields with volumes, and the field of the name."""


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks images and variables of all containers."""
    for component in pipeline.components.values():
        if component.container is None:
            continue
        location = f"{component.executor_location}.container"
        image = component.container.get("image", "")
        yield from _named(f"{location}.image", image, kubernetes_syntax.image(image))
        for index, variable in enumerate(component.container.get("env", [])):
            name = variable.get("name", "")
            place = f"{location}.env[{index}].name"
            yield from _named(place, name, kubernetes_syntax.variable(name))


def check_pod(config: dict[str, Any], location: str) -> Iterator[Finding]:
    """Checks one executor's pod; ``location`` is that of its ``config``."""
    for field in ("secretAsEnv", "secretAsVolume", "imagePullSecret"):
        for place, item in _items(config, field, location):
            yield from _constant(place, item, "secretName", kubernetes_syntax.subdomain)
    for place, item in _items(config, "secretAsEnv", location):
        for index, pair in enumerate(item.get("keyToEnv", [])):
            key, name = pair.get("secretKey", ""), pair.get("envVar", "")
            where = f"{place}.keyToEnv[{index}]"
            yield from _named(f"{where}.secretKey", key, kubernetes_syntax.config_key(key))
            yield from _named(f"{where}.envVar", name, kubernetes_syntax.variable(name))
    yield from _volumes(config, location)
    for place, item in _items(config, "emptyDirMounts", location):
        size = kubernetes_syntax.parse_quantity(item.get("sizeLimit", ""))
        if size is not None and size < 0:
            yield from _named(f"{place}.sizeLimit", item["sizeLimit"], "is below 0")
    for key, value in config.get("nodeSelector", {}).get("labels", {}).items():
        place = f"{location}.nodeSelector.labels"
        yield from _named(place, key, kubernetes_syntax.label_key(key))
        yield from _named(place, value, kubernetes_syntax.label_value(value))
    seconds = int(config.get("activeDeadlineSeconds", 0))
    if seconds > kubernetes_syntax.LARGEST_SECONDS:
        problem = f"is above {kubernetes_syntax.LARGEST_SECONDS}"
        yield from _named(f"{location}.activeDeadlineSeconds", str(seconds), problem)


def _volumes(config: dict[str, Any], location: str) -> Iterator[Finding]:
    """The driver names a claim's volume like the claim (makeVolumeMountPatch in k8s.go)."""
    taken, paths = {*kubernetes_syntax.TAKEN_VOLUMES} - {"shm"}, set()
    for field, key in _VOLUMES:
        claims = set()
        for place, item in _items(config, field, location):
            source = item.get("pvcNameParameter", {}).get("runtimeValue", {}).get("constant")
            name, path = item.get(key) or source or "", item.get("mountPath", "")
            if name in taken:
                yield from _named(f"{place}.{key}", name, "is the name of another volume")
            elif isinstance(name, str) and name:
                yield from _named(f"{place}.{key}", name, kubernetes_syntax.label(name))
            if path in paths:
                yield from _named(f"{place}.mountPath", path, "is the path of another volume")
            folder = item.get("subPath", "")
            yield from _named(f"{place}.subPath", folder, kubernetes_syntax.sub_path(folder))
            paths.add(path)
            claims.add(name)  # a pod may mount one claim at two paths
            if field != "pvcMount":
                taken.add(name)
        taken |= claims


def _constant(place: str, item: dict[str, Any], field: str, rule: Any) -> Iterator[Finding]:
    parameter = item.get(f"{field}Parameter", {})
    value = parameter.get("runtimeValue", {}).get("constant") or item.get(field)
    if isinstance(value, str) and value:
        yield from _named(f"{place}.{field}", value, rule(value))


def _items(
    config: dict[str, Any], field: str, location: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, item in enumerate(config.get(field, [])):
        yield f"{location}.{field}[{index}]", item


def _named(place: str, value: str, problem: str) -> Iterator[Finding]:
    if problem:
        yield Finding(
            "kubernetes-name",
            place,
            f"Kubernetes refuses the pod: {value!r} {problem}.",
            "Correct the value.",
            _POD,
        )
