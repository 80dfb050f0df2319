"""Rules for the platform document: Kubernetes settings of each executor's pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stagecraft.common import kubernetes_syntax
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline, Task
from stagecraft.pipeline.kubeflow.linter.protojson import KUBERNETES, Reader
from stagecraft.pipeline.kubeflow.linter.rules.containers import checked_name
from stagecraft.pipeline.kubeflow.linter.rules.sources import parameter_source

_IS_PLATFORM = "backend/src/apiserver/template/v2_template.go IsPlatformSpecWithKubernetesConfig"
_ADD = "backend/src/v2/compiler/argocompiler/spec_patch.go unmarshalKubernetesExecutorConfig"
_UNREAD = {
    "enabledSharedMemory": "Use emptyDirMounts with medium: Memory at /dev/shm.",
    "podAffinity": "Use nodeAffinity or nodeSelector.",
}
_EXTEND = "backend/src/v2/driver/k8s.go extendPodSpecPatch"
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
_NAMED_VOLUMES = (
    ("emptyDirMounts", "volumeName"),
    ("genericEphemeralVolume", "volumeName"),
    ("pvcMount", "constant"),
)
"""Fields with volumes, and the field of the name."""
_PULL = ("Always", "Never", "IfNotPresent")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_SELECTORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_USED = ("main", "init", "wait", "kfp-launcher")
"""Containers that Argo and the backend add to a pod."""


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
    yield from _check_secrets_and_volumes(config, location, users)
    yield from _check_start(config, location)
    yield from _check_names(config, location)


def _check_secrets_and_volumes(
    config: dict[str, Any], location: str, users: list[Task]
) -> Iterator[Finding]:
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
            _EXTEND,
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
            _EXTEND,
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
            _EXTEND,
        )


def _volume(item: dict[str, Any], place: str, size: str, *, needed: bool) -> Iterator[Finding]:
    if not item.get("volumeName"):
        yield _refused("volume", f"{place}.volumeName", "the volume has no name")
    text = item.get(size, "")
    if (text or needed) and kubernetes_syntax.parse_quantity(text) is None:
        yield Finding(
            "volume",
            f"{place}.{size}",
            f"The driver of the task fails: {text!r} is not an amount.",
            "Give an amount such as 8Gi.",
            _EXTEND,
        )


def _check_start(config: dict[str, Any], location: str) -> Iterator[Finding]:
    """Checks the start of one executor's pod; ``location`` is that of its ``config``."""
    policy = config.get("imagePullPolicy", "")
    if policy and policy not in _PULL:
        yield Finding(
            "image-pull-policy",
            f"{location}.imagePullPolicy",
            f"The driver of the task fails: {policy!r} is not a policy.",
            f"Use one of {', '.join(_PULL)}.",
            _EXTEND,
        )
    if config.get("activeDeadlineSeconds", 1) <= 0:
        yield Finding(
            "active-deadline",
            f"{location}.activeDeadlineSeconds",
            "The backend silently ignores it: a deadline must be above 0.",
            "Use seconds above 0, or remove the field.",
            _EXTEND,
        )
    context = config.get("securityContext", {})
    if context.get("runAsUser") == 0 and context.get("runAsNonRoot"):
        yield Finding(
            "security-context",
            f"{location}.securityContext",
            "The run is refused: runAsUser is 0 (root), and runAsNonRoot forbids it.",
            "Set another user, or remove runAsNonRoot.",
            "backend/src/v2/compiler/argocompiler/spec_patch.go validateKubernetesSecurityContext",
        )
    for index, toleration in enumerate(config.get("tolerations", [])):
        if problem := _toleration(toleration):
            yield _refused(
                "toleration", f"{location}.tolerations[{index}]", problem, "Correct the field."
            )
    for index, term in enumerate(config.get("nodeAffinity", [])):
        if problem := _affinity(term):
            yield _refused(
                "node-affinity", f"{location}.nodeAffinity[{index}]", problem, "Correct the field."
            )
    taken = list(_USED)
    for index, container in enumerate(config.get("initContainers", [])):
        if problem := _init_container(container, taken):
            yield Finding(
                "init-container",
                f"{location}.initContainers[{index}]",
                f"The driver of the task fails: {problem}.",
                "Give each a unique name, an image, and mounts with absolute paths.",
                _EXTEND,
            )
        taken.append(container.get("name", ""))


def _toleration(toleration: dict[str, Any]) -> str:
    if "tolerationJson" in toleration:
        return ""  # known at run time
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    if operator not in ("", "Exists", "Equal"):
        return f"operator {operator!r} is neither Exists nor Equal"
    if operator == "Exists" and toleration.get("value"):
        return "operator Exists takes no value"
    if not toleration.get("key") and operator != "Exists":
        return "without a key, the operator must be Exists"
    if effect not in _EFFECTS:
        return f"effect {effect!r} is none of {', '.join(_EFFECTS[1:])}"
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        return "tolerationSeconds is for effect NoExecute"
    return ""


def _affinity(term: dict[str, Any]) -> str:
    for requirement in [*term.get("matchExpressions", []), *term.get("matchFields", [])]:
        operator = requirement.get("operator", "")
        if operator not in _SELECTORS:
            return f"operator {operator!r} is none of {', '.join(_SELECTORS)}"
        if not requirement.get("key"):
            return "a requirement has no key"
        if operator in ("In", "NotIn") and not requirement.get("values"):
            return f"operator {operator} needs values"
    if "weight" in term and not 1 <= term["weight"] <= 100:
        return f"weight {term['weight']} is not between 1 and 100"
    return ""


def _init_container(container: dict[str, Any], taken: list[str]) -> str:
    name = container.get("name", "")
    if not name:
        return "the container has no name"
    if name in taken:
        return f"the pod has another container {name!r}"
    if not container.get("image"):
        return "the container has no image"
    if container.get("restartPolicy", "") not in ("", "Always"):
        return "restartPolicy is Always or left out"
    if any(not variable.get("name") for variable in container.get("env", [])):
        return "an environment variable has no name"
    for mount in container.get("volumeMounts", []):
        if not mount.get("volumeName") or not mount.get("mountPath", "").startswith("/"):
            return "a mount has no volumeName, or no absolute mountPath"
    resources = container.get("resources", {})
    for amounts in (resources.get("requests", {}), resources.get("limits", {})):
        for text in amounts.values():
            if kubernetes_syntax.parse_quantity(text) is None:
                return f"{text!r} is not an amount"
    return ""


def _check_names(config: dict[str, Any], location: str) -> Iterator[Finding]:
    """Checks names and numbers that Kubernetes validates in one executor's pod."""
    for field in ("secretAsEnv", "secretAsVolume", "imagePullSecret"):
        for item, place in _items(config, field, location):
            parameter = item.get("secretNameParameter", {})
            name = parameter.get("runtimeValue", {}).get("constant") or item.get("secretName")
            if isinstance(name, str) and name:
                problem = kubernetes_syntax.subdomain(name)
                yield from checked_name(f"{place}.secretName", name, problem)
    for item, place in _items(config, "secretAsEnv", location):
        for index, pair in enumerate(item.get("keyToEnv", [])):
            key, name = pair.get("secretKey", ""), pair.get("envVar", "")
            where = f"{place}.keyToEnv[{index}]"
            yield from checked_name(f"{where}.secretKey", key, kubernetes_syntax.config_key(key))
            yield from checked_name(f"{where}.envVar", name, kubernetes_syntax.variable(name))
    yield from _check_volumes(config, location)
    for item, place in _items(config, "emptyDirMounts", location):
        size = kubernetes_syntax.parse_quantity(item.get("sizeLimit", ""))
        if size is not None and size < 0:
            yield from checked_name(f"{place}.sizeLimit", item["sizeLimit"], "is below 0")
    for key, value in config.get("nodeSelector", {}).get("labels", {}).items():
        place = f"{location}.nodeSelector.labels"
        yield from checked_name(place, key, kubernetes_syntax.label_key(key))
        yield from checked_name(place, value, kubernetes_syntax.label_value(value))
    seconds = int(config.get("activeDeadlineSeconds", 0))
    if seconds > kubernetes_syntax.LARGEST_SECONDS:
        problem = f"is above {kubernetes_syntax.LARGEST_SECONDS}"
        yield from checked_name(f"{location}.activeDeadlineSeconds", str(seconds), problem)


def _check_volumes(config: dict[str, Any], location: str) -> Iterator[Finding]:
    """The driver names a claim's volume like the claim (makeVolumeMountPatch in k8s.go)."""
    taken, paths = {*kubernetes_syntax.TAKEN_VOLUMES} - {"shm"}, set()
    for field, key in _NAMED_VOLUMES:
        claims = set()
        for item, place in _items(config, field, location):
            source = item.get("pvcNameParameter", {}).get("runtimeValue", {}).get("constant")
            name, path = item.get(key) or source or "", item.get("mountPath", "")
            if name in taken:
                yield from checked_name(f"{place}.{key}", name, "is the name of another volume")
            elif isinstance(name, str) and name:
                yield from checked_name(f"{place}.{key}", name, kubernetes_syntax.label(name))
            if path in paths:
                yield from checked_name(f"{place}.mountPath", path, "is the path of another volume")
            folder = item.get("subPath", "")
            yield from checked_name(f"{place}.subPath", folder, kubernetes_syntax.sub_path(folder))
            paths.add(path)
            claims.add(name)  # a pod may mount one claim at two paths
            if field != "pvcMount":
                taken.add(name)
        taken |= claims


def _refused(
    rule: str, location: str, problem: str, remedy: str = "Add the missing field."
) -> Finding:
    return Finding(rule, location, f"Kubernetes refuses the pod: {problem}.", remedy, _EXTEND)
