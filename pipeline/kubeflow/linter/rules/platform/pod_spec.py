"""Rules for the start of a pod: image pulls, deadline, users, nodes, init containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.proto import quantity
from stagecraft.pipeline.kubeflow.linter.rules.platform.secrets_and_volumes import EXTEND

_PULL = ("Always", "Never", "IfNotPresent")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_SELECTORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_USED = ("main", "init", "wait", "kfp-launcher")
"""Containers that Argo and the backend add to a pod."""


def check(config: dict[str, Any], location: str) -> Iterator[Finding]:
    """Checks the start of one executor's pod; ``location`` is that of its ``config``."""
    policy = config.get("imagePullPolicy", "")
    if policy and policy not in _PULL:
        yield Finding(
            "image-pull-policy",
            f"{location}.imagePullPolicy",
            f"The driver of the task fails: {policy!r} is not a policy.",
            f"Use one of {', '.join(_PULL)}.",
            EXTEND,
        )
    if config.get("activeDeadlineSeconds", 1) <= 0:
        yield Finding(
            "active-deadline",
            f"{location}.activeDeadlineSeconds",
            "The backend silently ignores it: a deadline must be above 0.",
            "Use seconds above 0, or remove the field.",
            EXTEND,
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
            yield _refused("toleration", f"{location}.tolerations[{index}]", problem)
    for index, term in enumerate(config.get("nodeAffinity", [])):
        if problem := _affinity(term):
            yield _refused("node-affinity", f"{location}.nodeAffinity[{index}]", problem)
    names = list(_USED)
    for index, container in enumerate(config.get("initContainers", [])):
        if problem := _init_container(container, names):
            yield Finding(
                "init-container",
                f"{location}.initContainers[{index}]",
                f"The driver of the task fails: {problem}.",
                "Give each a unique name, an image, and mounts with absolute paths.",
                EXTEND,
            )
        names.append(container.get("name", ""))


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


def _init_container(container: dict[str, Any], names: list[str]) -> str:
    name = container.get("name", "")
    if not name:
        return "the container has no name"
    if name in names:
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
            if quantity.parse(text) is None:
                return f"{text!r} is not an amount"
    return ""


def _refused(rule: str, location: str, problem: str) -> Finding:
    return Finding(
        rule, location, f"Kubernetes refuses the pod: {problem}.", "Correct the field.", EXTEND
    )
