"""Whether all pods of a training see the folders that its settings name, and get the volumes.

https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

from stagecraft.components.kubernetes.api.connection import Refused
from stagecraft.components.kubernetes.api.reading import Json, Reading, Row, as_allowed
from stagecraft.components.kubernetes.jobs.pod_settings import Volume
from stagecraft.components.kubernetes.jobs.request import JobRequest
from stagecraft.components.object_store.folder import is_address

_CLAIM = "manifests/base/checkpoints.yaml"


def folder(setting: str, path: str, request: JobRequest, example: str) -> Row:
    """Whether a folder that all pods need is on one of the volumes, or in an object store.

    Args:
        setting: that names the folder.
        path: the folder.
        request: the training.
        example: what it may be called on a volume.
    """
    name, volumes = setting.rpartition(".")[2], request.pod.volumes
    if is_address(path):
        return _stored(name, path, request)
    if volume := _holding(path, volumes):
        return Row(name, f"{path}, on claim {volume.claim}")
    if not volumes:
        advice = "set kubeflow.steps.Trainer.volumes: [{claim: training, path: /mnt/training}], "
        advice += f"or {setting} to an address in an object store, as s3://bucket/{example}"
        return Row(name, f"{path or 'not set'}, and there is no volume", "missing", advice)
    there = ", ".join(volume.path for volume in volumes)
    found = f"{path or 'not set'}: on no volume ({there})"
    advice = f"set {setting}={volumes[0].path.rstrip('/')}/{example}"
    return Row(name, found, "missing", advice)


def _stored(name: str, path: str, request: JobRequest) -> Row:
    """Whether the pods have something to log in with; if it is right, only they see."""
    keys = {secret.env for secret in request.pod.secrets} | {*request.pod.env}
    if "AWS_ACCESS_KEY_ID" in keys and not path.startswith("gs://"):
        return Row(name, f"{path}, with the keys in AWS_ACCESS_KEY_ID")
    if account := request.job.service_account:
        return Row(name, f"{path}, as service account {account} may")
    advice = "give the pods keys (kubeflow.steps.Trainer.secrets: AWS_ACCESS_KEY_ID, "
    advice += "AWS_SECRET_ACCESS_KEY), or a service account that may write there "
    advice += "(kubeflow.job.service_account), unless their nodes may"
    return Row(name, f"{path}, with no keys", "note", advice)


def claims(reading: Reading, request: JobRequest, written: Sequence[str]) -> Iterator[Row]:
    """A row for each claim.

    Args:
        reading: the cluster.
        request: the training.
        written: folders that all pods write to.
    """
    volumes = request.pod.volumes
    holding = (_holding(path, volumes) for path in written)
    shared = {volume.claim for volume in holding if volume}
    for claim in dict.fromkeys(volume.claim for volume in volumes):
        name = f"claim {claim}"
        yield from as_allowed(
            name,
            lambda: _claim(reading, request, claim, claim in shared),  # noqa: B023
        )


def _holding(path: str, volumes: Sequence[Volume]) -> Volume | None:
    place = pathlib.PurePosixPath(path)
    return next((volume for volume in volumes if place.is_relative_to(volume.path)), None)


def _claim(reading: Reading, request: JobRequest, claim: str, written: bool) -> Iterator[Row]:
    name = f"claim {claim}"
    path = f"/api/v1/namespaces/{request.namespace}/persistentvolumeclaims/{claim}"
    found = reading.get(path)
    if found is None:
        advice = f"apply {_CLAIM} (there it is called training), or name another claim in "
        advice += "kubeflow.steps.Trainer.volumes"
        yield Row(name, f"is not in namespace {request.namespace}", "missing", advice)
        return
    phase = found.get("status", {}).get("phase", "Pending")
    if found["metadata"].get("deletionTimestamp") or phase == "Lost":
        state = "is lost" if phase == "Lost" else "is being deleted"
        yield Row(name, state, "missing", f"make it anew: {_CLAIM}")
        return
    problem = _modes(found, request.count, written)
    if problem:
        yield problem
    elif phase == "Bound":
        modes = found.get("status", {}).get("accessModes") or found["spec"]["accessModes"]
        yield Row(name, f"Bound, {', '.join(modes)}")
    else:
        yield _pending(reading, name, found)


def _modes(claim: Json, count: int, written: bool) -> Row | None:
    """What is wrong with how many nodes may mount it; the Trainer's step does so, too."""
    name = f"claim {claim['metadata']['name']}"
    modes = claim.get("status", {}).get("accessModes") or claim["spec"].get("accessModes", [])
    if "ReadWriteMany" in modes or (not written and "ReadOnlyMany" in modes):
        return None
    found = ", ".join(modes) or "no access mode"
    advice = f"use a claim with ReadWriteMany, of a class that can ({_CLAIM})"
    if count == 1 and modes == ["ReadWriteOnce"]:
        found += ": its pod has to come to the node of the Trainer's step"
        return Row(name, found, "note", advice)
    return Row(name, f"{found}: for {count} pods and the Trainer's step", "missing", advice)


def _pending(reading: Reading, name: str, claim: Json) -> Row:
    storage = claim["spec"].get("storageClassName")
    advice = f"name a class that many nodes can mount: storageClassName in {_CLAIM}"
    if not storage:
        return Row(name, "Pending, and has no storage class", "missing", advice)
    try:
        found = reading.get(f"/apis/storage.k8s.io/v1/storageclasses/{storage}")
    except Refused as error:
        if error.status != 403:
            raise
        advice = "kubectl describe pvc says why; fine if its class waits for the first pod"
        return Row(name, f"Pending; class {storage} may not be looked at", "note", advice)
    if found is None:
        return Row(name, f"Pending: there is no class {storage}", "missing", advice)
    if found.get("volumeBindingMode") == "WaitForFirstConsumer":
        return Row(name, f"Pending until a pod uses it, as class {storage} wants it")
    return Row(name, f"Pending: class {storage} has made no volume", "missing", advice)
