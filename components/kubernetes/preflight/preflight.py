"""Checks a cluster before a training starts there; changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.api.reader import CheckResult, Reader, as_allowed
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob, needs_newer_kubernetes
from stagecraft.components.kubernetes.jobs.job_settings import CLUSTER_JOBS
from stagecraft.components.kubernetes.jobs.request import JobRequest
from stagecraft.components.kubernetes.preflight import access, capacity, network, volumes

_TESTED = (1, 29)  # the oldest Kubernetes version whose schemas are in the tests


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """A training that has not started yet."""

    request: JobRequest
    folder: str  # ``kubeflow.job.folder``
    checkpoints: str  # ``kubeflow.checkpoints``
    default_image: str  # default of ``kubeflow.image``
    account: str | None = None  # service account of the Trainer's step; None: the current user


def check_cluster(client: Any, training: PlannedTraining) -> Iterator[CheckResult]:
    """All checks, the most fundamental first."""
    reader, request = Reader(client), training.request
    namespace, kind = request.namespace, CLUSTER_JOBS.get(request.job.kind)
    core, folders = f"/api/v1/namespaces/{namespace}", (training.folder, training.checkpoints)
    yield from as_allowed("api", _api(client, reader, request, kind))
    advice = "name an existing one with --namespace"
    yield from as_allowed("namespace", _exists(reader, core, "namespace", namespace, advice))
    yield from as_allowed("kind", _kind(reader, kind))
    for needed in kind.required_objects(namespace):
        missing = f"no {needed.title} in namespace {namespace}"
        check = _exists(
            reader, needed.path, needed.check, needed.title, needed.advice, missing=missing
        )
        yield from as_allowed(needed.check, check)
    yield _objects(request, kind)
    yield _image(request, training.default_image)
    yield from as_allowed("permissions", access.check(reader, namespace, kind, training.account))
    yield from as_allowed("network", network.check(reader, request))
    yield from capacity.check(reader, request, kind)
    yield volumes.check_folder("kubeflow.job.folder", training.folder, request, "jobs")
    yield volumes.check_folder("kubeflow.checkpoints", training.checkpoints, request, "checkpoints")
    yield from volumes.check_claims(reader, request, folders)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, setting, value, place in (
        ("account", "service_account", request.job.service_account, f"{core}/serviceaccounts"),
        ("priority", "priority_class", request.job.priority_class, classes),
    ):
        if value:
            advice = f"create it, or remove kubeflow.job.{setting}"
            yield from as_allowed(name, _exists(reader, f"{place}/{value}", name, value, advice))
    if request.job.queue:
        yield from as_allowed("queue", _queue(reader, request))


def _exists(
    reader: Reader, path: str, name: str, found: str, advice: str, *, missing: str = ""
) -> Iterator[CheckResult]:
    if reader.get(path) is not None:
        yield CheckResult(name, found)
    else:
        yield CheckResult(name, missing or f"{found} does not exist", "missing", advice)


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


def _kind(reader: Reader, kind: ClusterJob) -> Iterator[CheckResult]:
    name = f"{kind.plural}.{kind.group}/{kind.version}"
    served = _served(reader, kind.group)
    path = f"/apis/{kind.group}/{kind.version}"
    resources = (reader.get(path) or {}).get("resources", [])
    if any(each.get("name") == kind.plural for each in resources):
        yield CheckResult("kind", f"{name}, of {', '.join(served)}")
        return
    group = f"the API group {kind.group}"
    if kind.version in served:
        found = f"{group} does not have this resource"
    elif served:
        found = f"{group} has only {', '.join(served)}"
    else:
        found = f"{group} does not exist"
    advice = f"install {kind.controller}"
    if kind.needs_operator:
        advice += ", or set kubeflow.job.kind=job, which needs no operator"
    yield CheckResult("kind", f"no {name}: {found}", "missing", advice)


def _served(reader: Reader, group: str) -> list[str]:
    versions = (reader.get(f"/apis/{group}") or {}).get("versions", [])
    return [str(each["version"]) for each in versions]


def _objects(request: JobRequest, kind: ClusterJob) -> CheckResult:
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
    if request.pod.pull_policy(image) is None:
        found = f"{image}: Kubernetes pulls it for each pod"
        return CheckResult("image", found, "note", f"give it a version as its tag, or {advice}")
    if image == default:
        advice = f"load it on each node (docs/how-to/kubeflow.md), or {advice}"
        found = f"{image}: this default image is in no registry"
        return CheckResult("image", found, "note", advice)
    if "@sha256:" not in image:
        advice = "name it by its digest (@sha256:…): otherwise, its pods may get different images"
        return CheckResult("image", image, "note", advice)
    return CheckResult("image", image)


def _queue(reader: Reader, request: JobRequest) -> Iterator[CheckResult]:
    queue, group = request.job.queue, "kueue.x-k8s.io"
    served = _served(reader, group)
    if not served:
        advice = "install Kueue, or remove kubeflow.job.queue"
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
