"""Checks that a NetworkPolicy keeps other pods away from TensorFlow's servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stagecraft.components.kubernetes.api.reader import CheckResult, Reader
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL, PART_OF, JobRequest

_POLICY = "manifests/base/training-network.yaml"

_ANYWHERE = ("0.0.0.0/0", "::/0")


def check(reader: Reader, request: JobRequest) -> Iterator[CheckResult]:
    """Whether pods of a training accept connections of some pods alone.

    Policies add up (https://kubernetes.io/docs/concepts/services-networking/network-policies/): one
    that lets everybody in counts as much as one that lets nobody in.
    """
    path = f"/apis/networking.k8s.io/v1/namespaces/{request.namespace}/networkpolicies"
    labels = {JOB_LABEL: request.name, PART_OF: "stagecraft"}
    policies = [
        each
        for each in reader.items(path)
        if "Ingress" in each["spec"].get("policyTypes", ["Ingress"])
        and _selects(each["spec"].get("podSelector") or {}, labels)
    ]
    advice = (
        "TensorFlow's servers have no authentication: who reaches a pod can read and write its "
        f"files; apply {_POLICY}, with a network plugin that enforces policies"
    )
    names = ", ".join(sorted(each["metadata"]["name"] for each in policies))
    if not policies:
        found = "no NetworkPolicy for the pods of a training: each pod of the cluster reaches them"
        yield CheckResult("network", found, "note", advice)
    elif open_ := [each["metadata"]["name"] for each in policies if _lets_all_in(each["spec"])]:
        found = f"the NetworkPolicy {', '.join(open_)} lets everybody reach the pods of a training"
        yield CheckResult("network", found, "note", advice)
    else:
        yield CheckResult("network", f"NetworkPolicy {names}")


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects a pod."""
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _holds(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    if expression["operator"] == "Exists":
        return key in labels
    if expression["operator"] == "DoesNotExist":
        return key not in labels
    return (labels.get(key) in values) == (expression["operator"] == "In")


def _lets_all_in(spec: Mapping[str, Any]) -> bool:
    """Whether a rule has no sources, or all addresses or namespaces as a source."""
    for rule in spec.get("ingress") or ():
        sources = rule.get("from") or ()
        if not sources:
            return True
        for source in sources:
            block = (source.get("ipBlock") or {}).get("cidr")
            spaces = source.get("namespaceSelector")
            if block in _ANYWHERE or (spaces == {} and not source.get("podSelector")):
                return True
    return False
