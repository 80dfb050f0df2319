"""What a cluster needs before a training starts there: asked beforehand, changing nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import kubernetes

from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.api.reading import Reading, Row, as_allowed
from stagecraft.components.kubernetes.jobs import kinds, trainjob
from stagecraft.components.kubernetes.jobs.request import JobRequest
from stagecraft.components.kubernetes.preflight import access, capacity, volumes
from stagecraft.schemas.errors import UserError

_TESTED = (1, 29)
"""The oldest version whose schemas the objects were checked against."""

_KINDS = {
    "job": ("batch", "v1", "jobs", "a Kubernetes with Jobs"),
    "tfjob": ("kubeflow.org", "v1", "tfjobs", "Kubeflow's Training Operator 1.x"),
    "trainjob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs", "Kubeflow Trainer 2.x"),
}

_RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainingruntimes/{}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """A training, and what is around it."""

    request: JobRequest
    folder: str
    """``kubeflow.job.folder``"""

    checkpoints: str
    """``kubeflow.checkpoints``"""

    default_image: str
    """What ``kubeflow.image`` is when nobody has set it."""

    account: str | None = None
    """Service account of the Trainer's step; None: whoever asks."""


def rows(client: kubernetes.client.ApiClient, wanted: Wanted) -> Iterator[Row]:
    """One by one, the most fundamental first.

    Raises:
        Refused: the credentials are not valid (401), or the server fails.
        Unreachable: there is no answer.
    """
    reading, request = Reading(client), wanted.request
    job, namespace = request.job, request.namespace
    yield from as_allowed("api", lambda: _api(client, reading, request))
    yield from as_allowed("namespace", lambda: _namespace(reading, namespace))
    yield from as_allowed("kind", lambda: _kind(reading, job.kind))
    if job.kind == "trainjob":
        yield from as_allowed("runtime", lambda: _runtime(reading, namespace))
    yield _objects(request)
    yield _image(request, wanted.default_image)
    yield from as_allowed(
        "permissions",
        lambda: access.rows(reading, namespace, job.kind, wanted.account),
    )
    yield from capacity.rows(reading, request)
    yield volumes.folder("kubeflow.job.folder", wanted.folder, request, "jobs")
    yield volumes.folder("kubeflow.checkpoints", wanted.checkpoints, request, "checkpoints")
    written = (wanted.folder, wanted.checkpoints)
    yield from volumes.claims(reading, request, written)
    yield from _named(reading, request)


def _api(
    client: kubernetes.client.ApiClient, reading: Reading, request: JobRequest
) -> Iterator[Row]:
    reading.get("/version")  # 401 and no answer, in the words of this command
    version = connection.version(client)
    found = f"Kubernetes {_dotted(version)} at {reading.host}"
    what = kinds.needs_success_policy(request)
    if what and version < kinds.SUCCESS_POLICY:
        needed = _dotted(kinds.SUCCESS_POLICY)
        advice = f"{what} needs {needed} (successPolicy): use kubeflow.job.kind: "
        advice += "tfjob" if request.serves else "job"
        yield Row("api", found, "missing", advice)
    elif version < _TESTED:
        advice = f"the objects were checked against {_dotted(_TESTED)} and later"
        yield Row("api", found, "note", advice)
    else:
        yield Row("api", found)


def _namespace(reading: Reading, namespace: str) -> Iterator[Row]:
    if reading.get(f"/api/v1/namespaces/{namespace}") is not None:
        yield Row("namespace", namespace)
        return
    yield Row("namespace", f"there is no {namespace}", "missing", "give the one with --namespace")


def _kind(reading: Reading, kind: str) -> Iterator[Row]:
    """Whether the server knows the resource, and in the version that is rendered."""
    group, version, plural, operator = _KINDS[kind]
    name = f"{plural}.{group}"
    served = _served(reading, group)
    resources = (reading.get(f"/apis/{group}/{version}") or {}).get("resources", [])
    if any(each.get("name") == plural for each in resources):
        yield Row("kind", f"{name}/{version}, of {', '.join(served)}")
        return
    there = f"group {group} has {', '.join(served)}" if served else f"there is no group {group}"
    advice = f"install {operator}"
    if kind != "job":
        advice += ", or set kubeflow.job.kind=job, which needs no operator"
    yield Row("kind", f"no {name}/{version}: {there}", "missing", advice)


def _served(reading: Reading, group: str) -> list[str]:
    versions = (reading.get(f"/apis/{group}") or {}).get("versions", [])
    return [str(each["version"]) for each in versions]


def _runtime(reading: Reading, namespace: str) -> Iterator[Row]:
    found = f"TrainingRuntime {trainjob.RUNTIME}"
    if reading.get(_RUNTIMES.format(namespace, trainjob.RUNTIME)) is not None:
        yield Row("runtime", found)
        return
    advice = "write the namespace into manifests/trainer-runtime/kustomization.yaml, and: "
    advice += "kubectl apply -k manifests/trainer-runtime"
    yield Row("runtime", f"no {found} in namespace {namespace}", "missing", advice)


def _objects(request: JobRequest) -> Row:
    """Whether the settings can be said in a job of that kind."""
    try:
        kinds.render(request)
    except UserError as error:
        return Row(
            "job",
            f"cannot be made of these settings as a {request.job.kind}",
            "missing",
            str(error),
        )
    counts = ", ".join(f"{count} {kind}" for kind, count in request.processes.items())
    return Row("job", f"{request.job.kind} of {counts}")


def _image(request: JobRequest, default: str) -> Row:
    image = request.pod.image or request.image
    advice = "set kubeflow.image to yours, best by its digest: registry/name@sha256:…"
    if image == default:
        return Row("image", f"{image}: the default, which is in no registry", "missing", advice)
    if "@sha256:" not in image:
        advice = "name it by its digest (@sha256:…): pods of one training may get different ones"
        return Row("image", image, "note", advice)
    return Row("image", image)


def _named(reading: Reading, request: JobRequest) -> Iterator[Row]:
    """What the settings of the job name, each if it is named."""
    job, core = request.job, f"/api/v1/namespaces/{request.namespace}"
    if job.service_account:
        path = f"{core}/serviceaccounts/{job.service_account}"
        setting = f"kubeflow.job.service_account: {job.service_account}"
        yield from as_allowed("account", lambda: _exists(reading, "account", path, setting))
    if job.priority_class:
        path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{job.priority_class}"
        setting = f"kubeflow.job.priority_class: {job.priority_class}"
        yield from as_allowed("priority", lambda: _exists(reading, "priority", path, setting))
    if job.queue:
        yield from as_allowed("queue", lambda: _queue(reading, request))


def _exists(reading: Reading, name: str, path: str, setting: str) -> Iterator[Row]:
    _, value = setting.split(": ")
    if reading.get(path) is not None:
        yield Row(name, value)
    else:
        advice = f"make it, or leave {setting.partition(':')[0]} out"
        yield Row(name, f"there is no {value}", "missing", advice)


def _queue(reading: Reading, request: JobRequest) -> Iterator[Row]:
    queue, group = request.job.queue, "kueue.x-k8s.io"
    served = _served(reading, group)
    if not served:
        advice = "install Kueue, or leave kubeflow.job.queue out"
        yield Row("queue", f"LocalQueue {queue}: Kueue is not installed", "missing", advice)
        return
    place = f"/apis/{group}/{served[0]}/namespaces/{request.namespace}/localqueues/{queue}"
    found = reading.get(place)
    if found is None:
        advice = "make it, or set kubeflow.job.queue to one that is there"
        found_text = f"no LocalQueue {queue} in namespace {request.namespace}"
        yield Row("queue", found_text, "missing", advice)
        return
    for condition in found.get("status", {}).get("conditions", ()):
        if condition.get("type") == "Active" and condition.get("status") == "False":
            text = f"LocalQueue {queue} is not active: {condition.get('message', '')}"
            yield Row("queue", text, "missing", "its ClusterQueue takes no jobs as it is")
            return
    yield Row("queue", f"LocalQueue {queue}")


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
