"""Rules for resources of containers: CPUs, memory, accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from stagecraft.common import kubernetes_syntax
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline

_POD_RESOURCE = "backend/src/v2/driver/driver.go getPodResource"
_ACCELERATOR = "backend/src/v2/driver/driver.go initPodSpecPatch"
_FIELDS = ("cpuLimit", "memoryLimit", "cpuRequest", "memoryRequest")


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks the resources of all containers."""
    for _, container, location in pipeline.containers():
        yield from _resources(container.get("resources", {}), f"{location}.resources")


def _is_placeholder(text: str) -> bool:
    """Whether the value is known only at run time."""
    return "$.inputs.parameters['" in text


def _resources(resources: dict[str, Any], location: str) -> Iterator[Finding]:
    amounts: dict[str, Decimal] = {}
    for old in _FIELDS:
        new = "resource" + old[0].upper() + old[1:]
        name = new if resources.get(new) else old
        text = resources.get(new) or f"{resources.get(old, 0):g}"
        if _is_placeholder(text):
            continue
        amount = kubernetes_syntax.parse_quantity(text)
        if amount is None or amount < 0:
            yield _unreadable(f"{location}.{name}", text)
        elif amount:
            # Numbers of memory are gigabytes.
            amounts[old] = amount * (10**9 if name == old and "memory" in old else 1)
    for what in ("cpu", "memory"):
        limit, request = amounts.get(f"{what}Limit"), amounts.get(f"{what}Request")
        if limit is not None and request is not None and request > limit:
            yield Finding(
                "resources",
                f"{location}.{what}Request",
                f"Kubernetes refuses the pod: its request {request:f} exceeds its limit {limit:f}.",
                "Request no more than the limit.",
                _POD_RESOURCE,
            )
    if "accelerator" in resources:
        yield from _accelerator(resources["accelerator"], f"{location}.accelerator")


def _accelerator(accelerator: dict[str, Any], location: str) -> Iterator[Finding]:
    kind = accelerator.get("resourceType") or accelerator.get("type", "")
    number = accelerator.get("count", 0)
    count = accelerator.get("resourceCount") or (str(number) if number > 0 else "")
    if not kind or not count:
        yield Finding(
            "accelerator",
            location,
            "The backend silently ignores it: an accelerator needs a type and a count above 0.",
            "Give both, such as resourceType: nvidia.com/gpu and resourceCount: '1'.",
            _ACCELERATOR,
        )
    elif not _is_placeholder(kind) and "/" not in kind:
        yield Finding(
            "accelerator",
            location,
            f"Kubernetes refuses the pod: the type must be the name of a resource, "
            f"and {kind!r} is not.",
            "Use the device plugin's name, such as nvidia.com/gpu; select a GPU model with a "
            "node selector.",
            _ACCELERATOR,
        )
    elif not _is_placeholder(count):
        amount = kubernetes_syntax.parse_quantity(count)
        if amount is None or amount < 0 or amount != int(amount):
            yield _unreadable(location, count)


def _unreadable(location: str, text: str) -> Finding:
    return Finding(
        "resources",
        location,
        f"The driver of the task fails, or Kubernetes refuses the pod: {text!r} is not an amount.",
        "Use an amount such as 500m, 2 or 4Gi. For accelerators, use a whole number.",
        _POD_RESOURCE,
    )
