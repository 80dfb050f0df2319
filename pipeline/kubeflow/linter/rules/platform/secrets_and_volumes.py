"""Rules for secrets, config maps, volumes and variables of a pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Task
from stagecraft.pipeline.kubeflow.linter.proto import quantity
from stagecraft.pipeline.kubeflow.linter.rules.sources import parameter_source

EXTEND = "backend/src/v2/driver/k8s.go extendPodSpecPatch"
_PVC = "backend/src/v2/driver/k8s.go makeVolumeMountPatch"
_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_NAMED = {
    "secretAsVolume": ("secret-name", "secretName"),
    "secretAsEnv": ("secret-name", "secretName"),
    "imagePullSecret": ("secret-name", "secretName"),
    "configMapAsVolume": ("config-map-name", "configMapName"),
    "configMapAsEnv": ("config-map-name", "configMapName"),
}
"""Field -> the rule about its name, and the deprecated field for a name that is a constant."""
_KEYS = {"secretAsEnv": "secretKey", "configMapAsEnv": "configMapKey"}
_MOUNTED = (
    "secretAsVolume",
    "configMapAsVolume",
    "pvcMount",
    "emptyDirMounts",
    "genericEphemeralVolume",
)


def check(config: dict[str, Any], location: str, users: list[Task]) -> Iterator[Finding]:
    """Checks one executor's pod, which the tasks ``users`` run."""
    for field, (rule, constant) in _NAMED.items():
        for item, place in _items(config, field, location):
            yield from _name(item, place, rule, constant, users)
    for field, key in _KEYS.items():
        for item, place in _items(config, field, location):
            yield from _variables(item, place, key)
    for item, place in _items(config, "pvcMount", location):
        yield from _pvc(item, place, users)
    for field in _MOUNTED:
        for item, place in _items(config, field, location):
            yield from _mount_path(item, place)
    for item, place in _items(config, "fieldPathAsEnv", location):
        if not item.get("name") or not item.get("fieldPath"):
            yield _refused("field-path", place, "a name and a fieldPath are needed")
    for item, place in _items(config, "emptyDirMounts", location):
        yield from _volume(item, place, "sizeLimit", needed=False)
        medium = item.get("medium", "")
        if medium not in ("", "Memory") and not medium.startswith("HugePages"):
            yield _refused(
                "volume", f"{place}.medium", f"{medium!r} is not a medium such as Memory"
            )
    for item, place in _items(config, "genericEphemeralVolume", location):
        yield from _volume(item, place, "size", needed=True)
        modes = item.get("accessModes", [])
        if not modes or not set(modes) <= set(_ACCESS_MODES):
            yield _refused(
                "volume", f"{place}.accessModes", f"{modes} must be of {', '.join(_ACCESS_MODES)}"
            )


def _items(
    config: dict[str, Any], field: str, location: str
) -> Iterator[tuple[dict[str, Any], str]]:
    for index, item in enumerate(config.get(field, [])):
        yield item, f"{location}.{field}[{index}]"


def _name(
    item: dict[str, Any], place: str, rule: str, constant: str, users: list[Task]
) -> Iterator[Finding]:
    parameter = f"{constant}Parameter"
    if parameter in item:
        yield from _source(item[parameter], f"{place}.{parameter}", users, rule)
    elif not item.get(constant):
        yield Finding(
            rule,
            place,
            f"The driver of the task fails: {constant} and {parameter} are missing.",
            f"Give {parameter}, such as {{runtimeValue: {{constant: name}}}}.",
            EXTEND,
        )


def _source(source: dict[str, Any], place: str, users: list[Task], rule: str) -> Iterator[Finding]:
    """A name is resolved like a parameter of the task, and must be text."""
    for task in users:
        yield from parameter_source(source, task, place, makes_order=False)
    value = source.get("runtimeValue", {}).get("constant", "unknown")
    if not isinstance(value, str) or not value:
        yield Finding(
            rule,
            place,
            f"The driver of the task fails: the name is {value!r}, not text.",
            "Give a name.",
            "backend/src/v2/driver/resolve.go resolveInputParameterStr",
        )


def _variables(item: dict[str, Any], place: str, key: str) -> Iterator[Finding]:
    pairs = item.get("keyToEnv", [])
    if not pairs:
        yield Finding(
            "key-to-env",
            place,
            "The backend silently ignores it: keyToEnv is empty.",
            f"List the variables: {{{key}: …, envVar: …}}.",
            EXTEND,
        )
    for index, pair in enumerate(pairs):
        if not pair.get(key) or not pair.get("envVar"):
            yield _refused(
                "key-to-env", f"{place}.keyToEnv[{index}]", f"{key} and envVar are needed"
            )


def _pvc(item: dict[str, Any], place: str, users: list[Task]) -> Iterator[Finding]:
    old = ("constant", "taskOutputParameter", "componentInputParameter")
    if "pvcNameParameter" in item:
        yield from _source(
            item["pvcNameParameter"], f"{place}.pvcNameParameter", users, "pvc-mount"
        )
    elif not any(item.get(field) for field in old):
        yield Finding(
            "pvc-mount",
            place,
            "The driver of the task fails: the volume has no name.",
            "Give pvcNameParameter, such as {runtimeValue: {constant: claim}}.",
            _PVC,
        )
    elif not item.get("constant"):
        source = {field: item[field] for field in old[1:] if field in item}
        yield from _source(source, place, users, "pvc-mount")


def _mount_path(item: dict[str, Any], place: str) -> Iterator[Finding]:
    path = item.get("mountPath", "")
    if not path.startswith("/") or ":" in path:
        yield Finding(
            "mount-path",
            f"{place}.mountPath",
            f"Kubernetes refuses the pod, or mounts the volume at another path: {path!r} is not "
            "absolute, or has a colon.",
            "Use a path that begins with / and has no colon.",
            EXTEND,
        )


def _volume(item: dict[str, Any], place: str, size: str, *, needed: bool) -> Iterator[Finding]:
    if not item.get("volumeName"):
        yield _refused("volume", f"{place}.volumeName", "the volume has no name")
    text = item.get(size, "")
    if (text or needed) and quantity.parse(text) is None:
        yield Finding(
            "volume",
            f"{place}.{size}",
            f"The driver of the task fails: {text!r} is not an amount.",
            "Give an amount such as 8Gi.",
            EXTEND,
        )


def _refused(rule: str, place: str, problem: str) -> Finding:
    return Finding(
        rule, place, f"Kubernetes refuses the pod: {problem}.", "Add the missing field.", EXTEND
    )
