"""Checks a cluster before a training starts there; changes nothing."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.api.reader import CheckResult, Reader, as_allowed
from stagecraft.components.kubernetes.jobs.cluster_job import (
    ClusterJob,
    RequiredObject,
    needs_newer_kubernetes,
)
from stagecraft.components.kubernetes.jobs.job_settings import CLUSTER_JOBS
from stagecraft.components.kubernetes.jobs.request import JobRequest
from stagecraft.components.kubernetes.preflight import access, capacity, volumes
from stagecraft.schemas.errors import UserError

_TESTED = (1, 29)  # the oldest version of whose schemas tests check the objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """A training that has not started yet."""

    request: JobRequest
    folder: str
    """``kubeflow.job.folder``"""
    checkpoints: str
    """``kubeflow.checkpoints``"""
    default_image: str
    """Default of ``kubeflow.image``."""
    account: str | None = None
    """Service account of the Trainer's step; None: the current user."""


def check_cluster(client: Any, training: PlannedTraining) -> Iterator[CheckResult]:
    """All checks, the most fundamental first.

    Raises:
        Refused: the credentials are not valid (401), or the server fails.
        Unreachable: the server does not answer.
    """
    reader, request = Reader(client), training.request
    namespace, kind = request.namespace, CLUSTER_JOBS.get(request.job.kind)
    yield from as_allowed("api", lambda: _api(client, reader, request, kind))
    yield from as_allowed("namespace", lambda: _namespace(reader, namespace))
    yield from as_allowed("kind", lambda: _kind(reader, kind))
    for needed in kind.required_objects(namespace):
        yield from as_allowed(needed.check, functools.partial(_required, reader, needed, namespace))
    yield _objects(request, kind)
    yield _image(request, training.default_image)
    yield from as_allowed(
        "permissions", lambda: access.check(reader, namespace, kind, training.account)
    )
    yield from capacity.check(reader, request, kind)
    yield volumes.check_folder("kubeflow.job.folder", training.folder, request, "jobs")
    yield volumes.check_folder("kubeflow.checkpoints", training.checkpoints, request, "checkpoints")
    yield from volumes.check_claims(reader, request, (training.folder, training.checkpoints))
    yield from _named(reader, request)


def _api(
    client: Any, reader: Reader, request: JobRequest, kind: ClusterJob
) -> Iterator[CheckResult]:
    reader.get("/version")  # for 401 and no answer, with the reader's messages
    version = connection.version(client)
    found = f"Kubernetes {_dotted(version)} at {reader.host}"
    if too_old := needs_newer_kubernetes(kind, request, version):
        problem, other = too_old
        yield CheckResult("api", found, "missing", f"{problem}: use kubeflow.job.kind: {other}")
    elif version < _TESTED:
        advice = f"the objects were checked against {_dotted(_TESTED)} and later"
        yield CheckResult("api", found, "note", advice)
    else:
        yield CheckResult("api", found)


def _namespace(reader: Reader, namespace: str) -> Iterator[CheckResult]:
    if reader.get(f"/api/v1/namespaces/{namespace}") is not None:
        yield CheckResult("namespace", namespace)
        return
    advice = "name an existing one with --namespace"
    yield CheckResult("namespace", f"{namespace} does not exist", "missing", advice)


def _kind(reader: Reader, kind: ClusterJob) -> Iterator[CheckResult]:
    """Whether the server has the resource in the version that is rendered."""
    name = f"{kind.plural}.{kind.group}/{kind.version}"
    served = _served(reader, kind.group)
    path = f"/apis/{kind.group}/{kind.version}"
    resources = (reader.get(path) or {}).get("resources", [])
    if any(each.get("name") == kind.plural for each in resources):
        yield CheckResult("kind", f"{name}, of {', '.join(served)}")
        return
    group = f"group {kind.group}"
    found = f"{group} has {', '.join(served)}" if served else f"{group} does not exist"
    advice = f"install {kind.controller}"
    if kind.needs_operator:
        advice += ", or set kubeflow.job.kind=job, which needs no operator"
    yield CheckResult("kind", f"no {name}: {found}", "missing", advice)


def _served(reader: Reader, group: str) -> list[str]:
    versions = (reader.get(f"/apis/{group}") or {}).get("versions", [])
    return [str(each["version"]) for each in versions]


def _required(reader: Reader, needed: RequiredObject, namespace: str) -> Iterator[CheckResult]:
    if reader.get(needed.path) is not None:
        yield CheckResult(needed.check, needed.title)
        return
    found = f"no {needed.title} in namespace {namespace}"
    yield CheckResult(needed.check, found, "missing", needed.advice)


def _objects(request: JobRequest, kind: ClusterJob) -> CheckResult:
    """Whether a job of this kind has fields for all settings."""
    try:
        kind.render(request)
    except UserError as error:
        found = f"a {kind.name} cannot have these settings"
        return CheckResult("job", found, "missing", str(error))
    counts = ", ".join(f"{count} {role}" for role, count in request.processes.items())
    return CheckResult("job", f"{kind.name} of {counts}")


def _image(request: JobRequest, default: str) -> CheckResult:
    image = request.pod.image or request.image
    advice = "set kubeflow.image to yours, best by its digest: registry/name@sha256:…"
    if image == default:
        return CheckResult(
            "image", f"{image}: the default, which no registry has", "missing", advice
        )
    if "@sha256:" not in image:
        advice = "name it by its digest (@sha256:…): otherwise, its pods may get different images"
        return CheckResult("image", image, "note", advice)
    return CheckResult("image", image)


def _named(reader: Reader, request: JobRequest) -> Iterator[CheckResult]:
    """Objects that the job's settings name."""
    job, core = request.job, f"/api/v1/namespaces/{request.namespace}"
    if job.service_account:
        path = f"{core}/serviceaccounts/{job.service_account}"
        setting = f"kubeflow.job.service_account: {job.service_account}"
        yield from as_allowed("account", lambda: _exists(reader, "account", path, setting))
    if job.priority_class:
        path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{job.priority_class}"
        setting = f"kubeflow.job.priority_class: {job.priority_class}"
        yield from as_allowed("priority", lambda: _exists(reader, "priority", path, setting))
    if job.queue:
        yield from as_allowed("queue", lambda: _queue(reader, request))


def _exists(reader: Reader, name: str, path: str, setting: str) -> Iterator[CheckResult]:
    _, value = setting.split(": ")
    if reader.get(path) is not None:
        yield CheckResult(name, value)
    else:
        advice = f"create it, or leave {setting.partition(':')[0]} out"
        yield CheckResult(name, f"{value} does not exist", "missing", advice)


def _queue(reader: Reader, request: JobRequest) -> Iterator[CheckResult]:
    queue, group = request.job.queue, "kueue.x-k8s.io"
    served = _served(reader, group)
    if not served:
        advice = "install Kueue, or leave kubeflow.job.queue out"
        yield CheckResult("queue", f"LocalQueue {queue}: Kueue is not installed", "missing", advice)
        return
    place = f"/apis/{group}/{served[0]}/namespaces/{request.namespace}/localqueues/{queue}"
    found = reader.get(place)
    if found is None:
        advice = "create it, or set kubeflow.job.queue to an existing one"
        missing = f"no LocalQueue {queue} in namespace {request.namespace}"
        yield CheckResult("queue", missing, "missing", advice)
        return
    for condition in found.get("status", {}).get("conditions", ()):
        if condition.get("type") == "Active" and condition.get("status") == "False":
            text = f"LocalQueue {queue} is not active: {condition.get('message', '')}"
            yield CheckResult("queue", text, "missing", "its ClusterQueue admits no jobs now")
            return
    yield CheckResult("queue", f"LocalQueue {queue}")


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
