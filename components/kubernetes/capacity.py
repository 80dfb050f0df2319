"""Checks a training's pods against the quotas and limits of a namespace.

https://kubernetes.io/docs/concepts/policy/resource-quotas/ and .../limit-range/
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from stagecraft.components.kubernetes.api.reader import CheckResult, Json, Reader, as_allowed
from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob
from stagecraft.components.kubernetes.jobs.request import JobRequest

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
"""A quota on one of these refuses pods without an amount of it."""

Amounts = dict[str, Decimal]


@dataclasses.dataclass(frozen=True)
class _Pods:
    count: int
    requests: Amounts
    limits: Amounts


def check(reader: Reader, request: JobRequest, kind: ClusterJob) -> Iterator[CheckResult]:
    """A result for each LimitRange and ResourceQuota of the namespace."""
    path, wanted = f"/api/v1/namespaces/{request.namespace}", _pods(request, kind)
    ranges: list[Json] = []

    def limits() -> Iterator[CheckResult]:
        ranges.extend(reader.items(f"{path}/limitranges"))
        yield from (_limits(each, wanted) for each in ranges)

    def quotas() -> Iterator[CheckResult]:
        defaults = [item for each in ranges for item in _items(each, "Container")]
        admitted = [_with_defaults(each, defaults) for each in wanted]
        listed = reader.items(f"{path}/resourcequotas")
        yield from (_quota(quota, admitted, kind) for quota in listed)
        if not listed:
            yield CheckResult("quota", f"namespace {request.namespace} has no ResourceQuota")

    yield from as_allowed("limits", limits())
    yield from as_allowed("quota", quotas())


def _pods(request: JobRequest, kind: ClusterJob) -> list[_Pods]:
    result = []
    for role, count in request.processes.items():
        of_role = pods.resources(request.pod, role if kind.resources_by_role else "worker")
        amounts = _amounts(of_role.get("limits"))
        result.append(_Pods(count, amounts, dict(amounts)))
    return result


def _items(limit_range: Json, *kinds: str) -> list[Json]:
    items = limit_range.get("spec", {}).get("limits") or ()
    return [item for item in items if item.get("type") in kinds]


def _limits(limit_range: Json, wanted: list[_Pods]) -> CheckResult:
    name = f"limits {limit_range['metadata']['name']}"
    problems = []
    for item in _items(limit_range, "Container", "Pod"):
        for each in wanted:
            for key, most in _amounts(item.get("max")).items():
                if each.limits.get(key, 0) > most:
                    problems.append(f"{key} {_text(each.limits[key])}, at most {_text(most)}")
            for key, least in _amounts(item.get("min")).items():
                if key in each.requests and each.requests[key] < least:
                    problems.append(f"{key} {_text(each.requests[key])}, at least {_text(least)}")
    if problems:
        found = f"of a pod: {'; '.join(dict.fromkeys(problems))}"
        named = _settings(problem.split()[0] for problem in problems)
        return CheckResult(name, found, "missing", f"{named}change the LimitRange")
    return CheckResult(name, "each pod fits")


def _with_defaults(wanted: _Pods, items: list[Json]) -> _Pods:
    """Adds the defaults of LimitRanges, as the API server does when it admits a pod."""
    limits, requests = dict(wanted.limits), dict(wanted.requests)
    for item in items:
        default = _amounts(item.get("max")) | _amounts(item.get("default"))
        for key, value in default.items():
            limits.setdefault(key, value)
        for key, value in (default | _amounts(item.get("defaultRequest"))).items():
            requests.setdefault(key, value)
    return _Pods(wanted.count, requests, limits)


def _quota(quota: Json, admitted: list[_Pods], kind: ClusterJob) -> CheckResult:
    name = f"quota {quota['metadata']['name']}"
    spec, status = quota.get("spec", {}), quota.get("status", {})
    if spec.get("scopes") or spec.get("scopeSelector"):
        return CheckResult(name, "counts only some pods (scopes); not compared", "note")
    unset = [key for key in spec.get("hard", {}) if _is_unset(key, admitted)]
    if unset:
        advice = f"{_settings(unset)}set a default in a LimitRange"
        found = f"refuses pods without {', '.join(unset)}"
        return CheckResult(name, found, "missing", advice)
    need, used = _need(admitted, kind), _amounts(status.get("used"))
    fits: list[str] = []
    short: list[str] = []
    for key, hard in _amounts(spec.get("hard")).items():
        if not need.get(key):
            continue
        free = hard - used.get(key, Decimal(0))
        text = f"{key} {_text(need[key])} of {_text(free)} free"
        (fits if need[key] <= free else short).append(text)
    if short:
        advice = "raise the quota, wait until other pods end, or use fewer resources (parallel, "
        advice += "kubeflow.steps.Trainer)"
        return CheckResult(name, f"too little: {', '.join(short)}", "missing", advice)
    return CheckResult(name, ", ".join(fits) or "limits nothing that the training job uses")


def _is_unset(key: str, admitted: list[_Pods]) -> bool:
    side, _, resource = key.rpartition(".") if "." in key else ("requests", "", key)
    if resource not in _COMPUTE or side not in ("requests", "limits"):
        return False
    return any(resource not in getattr(each, side) for each in admitted)


def _need(admitted: list[_Pods], kind: ClusterJob) -> Amounts:
    need: Amounts = collections.defaultdict(Decimal)
    for each in admitted:
        need["pods"] += each.count
        need["count/pods"] += each.count
        for key, value in each.requests.items():
            need[f"requests.{key}"] += value * each.count
            if key in _COMPUTE:
                need[key] += value * each.count
        for key, value in each.limits.items():
            need[f"limits.{key}"] += value * each.count
    for key in kind.quota:
        need[key] += 1
    return need


def _amounts(values: Mapping[str, str] | None) -> Amounts:
    return {key: parse_quantity(value) for key, value in (values or {}).items()}


def _settings(keys: Iterable[str]) -> str:
    """The settings for the missing amounts, as the beginning of an advice; empty: none."""
    fields = {"cpu": "cpu", "memory": "memory", "gpu": "gpus"}
    found = (fields.get(key.rpartition(".")[2].rpartition("/")[2]) for key in keys)
    names = dict.fromkeys(f"kubeflow.steps.Trainer.{field}" for field in found if field)
    return f"set {' and '.join(names)}, or " if names else ""


def _text(value: Decimal) -> str:
    for power, suffix in ((40, "Ti"), (30, "Gi"), (20, "Mi")):
        if abs(value) >= 2**power and value * 100 % 2**power == 0:
            return f"{(value / 2**power).normalize():f}{suffix}"
    return f"{value.normalize():f}"
