"""Whether a training's pods fit into what a namespace may have.

https://kubernetes.io/docs/concepts/policy/resource-quotas/ and .../limit-range/
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from stagecraft.components.kubernetes.api.reading import Json, Reading, Row, as_allowed
from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.request import JobRequest

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
"""A quota on one of these refuses pods that do not say how much they want."""

_OBJECTS = {
    "job": ("count/jobs.batch", "services", "count/services"),
    "tfjob": ("count/tfjobs.kubeflow.org",),
    "trainjob": ("count/trainjobs.trainer.kubeflow.org", "count/jobs.batch"),
}
"""Of which a training makes one. The operators' own Services and Pods are not all told here."""

Amounts = dict[str, Decimal]


@dataclasses.dataclass(frozen=True)
class _Pods:
    """Pods that are alike."""

    count: int
    requests: Amounts
    limits: Amounts


def rows(reading: Reading, request: JobRequest) -> Iterator[Row]:
    """Of each LimitRange and ResourceQuota of the namespace."""
    place, wanted = f"/api/v1/namespaces/{request.namespace}", _wanted(request)
    ranges: list[Json] = []

    def limits() -> Iterator[Row]:
        ranges.extend(reading.items(f"{place}/limitranges"))
        yield from (_limits(each, wanted) for each in ranges)

    def quotas() -> Iterator[Row]:
        defaults = [item for each in ranges for item in _items(each, "Container")]
        given = [_with_defaults(each, defaults) for each in wanted]
        found = reading.items(f"{place}/resourcequotas")
        yield from (_quota(quota, given, request) for quota in found)
        if not found:
            yield Row("quota", f"namespace {request.namespace} has no ResourceQuota")

    yield from as_allowed("limits", limits)
    yield from as_allowed("quota", quotas)


def _wanted(request: JobRequest) -> list[_Pods]:
    """All processes of a Job and of a TrainJob get a worker's share; those of a TFJob their own."""
    found = []
    for kind, count in request.processes.items():
        role = kind if request.job.kind == "tfjob" else "worker"
        limits = pods.resources(request.pod, role).get("limits", {})
        amounts = {name: parse_quantity(value) for name, value in limits.items()}
        found.append(_Pods(count, amounts, dict(amounts)))
    return found


def _items(limit_range: Json, *kinds: str) -> list[Json]:
    items = limit_range.get("spec", {}).get("limits") or ()
    return [item for item in items if item.get("type") in kinds]


def _limits(limit_range: Json, wanted: list[_Pods]) -> Row:
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
        return Row(name, found, "missing", f"{named}change the LimitRange")
    return Row(name, "each pod fits")


def _with_defaults(wanted: _Pods, items: list[Json]) -> _Pods:
    """As admission fills in what a container does not say, from a LimitRange."""
    limits, requests = dict(wanted.limits), dict(wanted.requests)
    for item in items:
        default = _amounts(item.get("max")) | _amounts(item.get("default"))
        for key, value in default.items():
            limits.setdefault(key, value)
        for key, value in (default | _amounts(item.get("defaultRequest"))).items():
            requests.setdefault(key, value)
    return _Pods(wanted.count, requests, limits)


def _quota(quota: Json, given: list[_Pods], request: JobRequest) -> Row:
    name = f"quota {quota['metadata']['name']}"
    spec, status = quota.get("spec", {}), quota.get("status", {})
    if spec.get("scopes") or spec.get("scopeSelector"):
        return Row(name, "counts certain pods only (scopes): not compared", "note")
    unsaid = [key for key in spec.get("hard", {}) if _unsaid(key, given)]
    if unsaid:
        advice = f"{_settings(unsaid)}give a LimitRange a default for it"
        found = f"refuses pods that do not say {', '.join(unsaid)}"
        return Row(name, found, "missing", advice)
    need, used = _need(given, request), _amounts(status.get("used"))
    fits: list[str] = []
    short: list[str] = []
    for key, hard in _amounts(spec.get("hard")).items():
        if not need.get(key):
            continue
        free = hard - used.get(key, Decimal(0))
        text = f"{key} {_text(need[key])} of {_text(free)} free"
        (fits if need[key] <= free else short).append(text)
    if short:
        advice = "raise the quota, wait until others are done, or ask for less (parallel, "
        advice += "kubeflow.steps.Trainer)"
        return Row(name, f"too little: {', '.join(short)}", "missing", advice)
    return Row(name, ", ".join(fits) or "limits nothing that the training asks for")


def _unsaid(key: str, given: list[_Pods]) -> bool:
    side, _, resource = key.rpartition(".") if "." in key else ("requests", "", key)
    if resource not in _COMPUTE or side not in ("requests", "limits"):
        return False
    return any(resource not in getattr(each, side) for each in given)


def _need(given: list[_Pods], request: JobRequest) -> Amounts:
    """By the keys of a quota."""
    need: Amounts = collections.defaultdict(Decimal)
    for each in given:
        need["pods"] += each.count
        need["count/pods"] += each.count
        for key, value in each.requests.items():
            need[f"requests.{key}"] += value * each.count
            if key in _COMPUTE:
                need[key] += value * each.count
        for key, value in each.limits.items():
            need[f"limits.{key}"] += value * each.count
    for key in _OBJECTS[request.job.kind]:
        need[key] += 1
    return need


def _amounts(values: Mapping[str, str] | None) -> Amounts:
    return {key: parse_quantity(value) for key, value in (values or {}).items()}


def _settings(keys: Iterable[str]) -> str:
    """The first half of an advice; empty where no setting says it."""
    fields = {"cpu": "cpu", "memory": "memory", "gpu": "gpus"}
    found = (fields.get(key.rpartition(".")[2].rpartition("/")[2]) for key in keys)
    names = dict.fromkeys(f"kubeflow.steps.Trainer.{field}" for field in found if field)
    return f"set {' and '.join(names)}, or " if names else ""


def _text(value: Decimal) -> str:
    for power, suffix in ((40, "Ti"), (30, "Gi"), (20, "Mi")):
        if abs(value) >= 2**power and value * 100 % 2**power == 0:
            return f"{(value / 2**power).normalize():f}{suffix}"
    return f"{value.normalize():f}"
