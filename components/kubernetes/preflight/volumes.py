"""Checks that all pods of a training reach its folders and volumes.

https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

from stagecraft.components.kubernetes.api.connection import Refused
from stagecraft.components.kubernetes.api.reader import CheckResult, Json, Reader, as_allowed
from stagecraft.components.kubernetes.jobs.pod_settings import Volume
from stagecraft.components.kubernetes.jobs.request import JobRequest
from stagecraft.components.object_store.folder import is_address

_CLAIM = "manifests/base/checkpoints.yaml"


def check_folder(setting: str, path: str, request: JobRequest, example: str) -> CheckResult:
    """Whether a folder for all pods, such as ``example``, is on a volume or in an object store."""
    name, volumes = setting.rpartition(".")[2], request.pod.volumes
    if is_address(path):
        return _stored(name, path, request)
    if volume := _holding(path, volumes):
        return CheckResult(name, f"{path}, on claim {volume.claim}")
    if not volumes:
        advice = "set kubeflow.steps.Trainer.volumes: [{claim: training, path: /mnt/training}], "
        advice += f"or {setting} to a URI in an object store, such as s3://bucket/{example}"
        return CheckResult(
            name, f"{path or 'not set'}, and the step has no volume", "missing", advice
        )
    mounted = ", ".join(volume.path for volume in volumes)
    found = f"{path or 'not set'}: not on a volume ({mounted})"
    advice = f"set {setting}={volumes[0].path.rstrip('/')}/{example}"
    return CheckResult(name, found, "missing", advice)


def _stored(name: str, path: str, request: JobRequest) -> CheckResult:
    """Whether the pods have credentials; only the pods can use them."""
    keys = {secret.env for secret in request.pod.secrets} | {*request.pod.env}
    if "AWS_ACCESS_KEY_ID" in keys and not path.startswith("gs://"):
        return CheckResult(name, f"{path}, with the keys in AWS_ACCESS_KEY_ID")
    if account := request.job.service_account:
        return CheckResult(name, f"{path}, as service account {account} may")
    advice = "set keys for the pods (kubeflow.steps.Trainer.secrets: AWS_ACCESS_KEY_ID, "
    advice += "AWS_SECRET_ACCESS_KEY), or a service account that may write there "
    advice += "(kubeflow.job.service_account), unless their nodes may"
    return CheckResult(name, f"{path}, with no keys", "note", advice)


def check_claims(
    reader: Reader, request: JobRequest, written: Sequence[str]
) -> Iterator[CheckResult]:
    """A result for each claim; all pods write to the folders ``written``."""
    volumes = request.pod.volumes
    holding = (_holding(path, volumes) for path in written)
    shared = {volume.claim for volume in holding if volume}
    for claim in dict.fromkeys(volume.claim for volume in volumes):
        check = _claim(reader, request, claim, claim in shared)
        yield from as_allowed(f"claim {claim}", check)


def _holding(path: str, volumes: Sequence[Volume]) -> Volume | None:
    place = pathlib.PurePosixPath(path)
    return next((volume for volume in volumes if place.is_relative_to(volume.path)), None)


def _claim(reader: Reader, request: JobRequest, claim: str, written: bool) -> Iterator[CheckResult]:
    name = f"claim {claim}"
    path = f"/api/v1/namespaces/{request.namespace}/persistentvolumeclaims/{claim}"
    found = reader.get(path)
    if found is None:
        advice = f"apply {_CLAIM} (it names the claim training), or name another claim in "
        advice += "kubeflow.steps.Trainer.volumes"
        yield CheckResult(name, f"is not in namespace {request.namespace}", "missing", advice)
        return
    phase = found.get("status", {}).get("phase", "Pending")
    if found["metadata"].get("deletionTimestamp") or phase == "Lost":
        state = "is lost" if phase == "Lost" else "is being deleted"
        yield CheckResult(name, state, "missing", f"create it again: {_CLAIM}")
        return
    problem = _modes(found, request.count, written)
    if problem:
        yield problem
    elif phase == "Bound":
        modes = found.get("status", {}).get("accessModes") or found["spec"]["accessModes"]
        yield CheckResult(name, f"Bound, {', '.join(modes)}")
    else:
        yield _pending(reader, name, found)


def _modes(claim: Json, count: int, written: bool) -> CheckResult | None:
    """A problem with the access modes; the Trainer's step mounts the claim, too."""
    name = f"claim {claim['metadata']['name']}"
    modes = claim.get("status", {}).get("accessModes") or claim["spec"].get("accessModes", [])
    if "ReadWriteMany" in modes or (not written and "ReadOnlyMany" in modes):
        return None
    found = ", ".join(modes) or "no access mode"
    advice = f"use a claim with ReadWriteMany, of a class that supports it ({_CLAIM})"
    if count == 1 and modes == ["ReadWriteOnce"]:
        found += ": its pod must run on the node of the Trainer's step"
        return CheckResult(name, found, "note", advice)
    return CheckResult(name, f"{found}: for {count} pods and the Trainer's step", "missing", advice)


def _pending(reader: Reader, name: str, claim: Json) -> CheckResult:
    storage = claim["spec"].get("storageClassName")
    advice = f"name a class that many nodes can mount: storageClassName in {_CLAIM}"
    if not storage:
        return CheckResult(name, "Pending, and has no storage class", "missing", advice)
    try:
        found = reader.get(f"/apis/storage.k8s.io/v1/storageclasses/{storage}")
    except Refused as error:
        if error.status != 403:
            raise
        advice = "kubectl describe pvc shows the reason; a class may wait for the first pod"
        return CheckResult(
            name, f"Pending; these credentials may not read class {storage}", "note", advice
        )
    if found is None:
        return CheckResult(name, f"Pending: class {storage} does not exist", "missing", advice)
    if found.get("volumeBindingMode") == "WaitForFirstConsumer":
        return CheckResult(name, f"Pending until a pod uses it (class {storage})")
    return CheckResult(name, f"Pending: class {storage} has provided no volume", "missing", advice)
