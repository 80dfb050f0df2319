"""Claims: there, of a mode for many nodes, and with a volume or waiting for a pod."""

from typing import Any

import pytest
from job_requests import job_request
from kube_api import KubeApi, kube_api
from kubernetes import client

from stagecraft.components.kubernetes import preflight
from stagecraft.components.kubernetes.api.reader import CheckResult, Reader
from stagecraft.components.kubernetes.jobs.settings import PodSettings

MANY, ONE, READ = "ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"


def claim_row(
    fields: dict[str, Any] | None, *, workers: int = 2, written: bool = True
) -> CheckResult:
    """Of a claim in a cluster with two storage classes."""
    with kube_api() as server:
        for name, mode in (("nfs", "Immediate"), ("late", "WaitForFirstConsumer")):
            server.add("storageclasses", name, volumeBindingMode=mode)
        if fields is not None:
            server.add("persistentvolumeclaims", "training", **fields)
        return _row(server, workers, written)


def _row(server: KubeApi, workers: int, written: bool) -> CheckResult:
    mounts = [{"claim": "training", "path": "/mnt/training"}]
    pod = PodSettings.model_validate({"volumes": mounts})
    request = job_request("job", processes={"worker": workers}, pod=pod)
    configuration = client.Configuration(host=server.url)
    configuration.api_key["authorization"] = "Bearer token"
    reader = Reader(client.ApiClient(configuration))
    folders = ["/mnt/training/jobs"] if written else []
    [row] = preflight.check_claims(reader, request, folders)
    return row


def claim(mode: str, phase: str = "Bound", storage: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": [mode]}
    return {
        "spec": spec | ({"storageClassName": storage} if storage else {}),
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("fields", "more", "verdict", "said"),
    [
        (None, {}, "missing", "is not in namespace kubeflow"),
        (claim(MANY), {}, "ok", "Bound, ReadWriteMany"),
        (claim(ONE), {}, "missing", "ReadWriteOnce: for 2 pods and the Trainer's step"),
        (claim(ONE), {"workers": 1}, "note", "on the node of the Trainer's step"),
        (claim("ReadWriteOncePod"), {"workers": 1}, "missing", "ReadWriteOncePod"),
        (claim(READ), {}, "missing", READ),
        (claim(READ), {"written": False}, "ok", "Bound, ReadOnlyMany"),
        (claim(MANY, "Lost"), {}, "missing", "is lost"),
        (claim(MANY, "Pending"), {}, "missing", "no storage class"),
        (claim(MANY, "Pending", "late"), {}, "ok", "Pending until a pod uses it"),
        (claim(MANY, "Pending", "nfs"), {}, "missing", "class nfs has provided no volume"),
        (claim(MANY, "Pending", "none"), {}, "missing", "class none does not exist"),
    ],
)
def test_claims(fields, more, verdict, said):
    row = claim_row(fields, **more)
    assert row.verdict == verdict and said in row.found
    assert row.verdict == "ok" or "manifests/base/checkpoints.yaml" in row.advice


def test_the_volumes_own_modes_count():
    """A claim for many may be bound to a volume for one."""
    bound = claim(MANY) | {"status": {"phase": "Bound", "accessModes": [ONE]}}
    assert claim_row(bound).verdict == "missing"


def test_a_class_that_may_not_be_looked_at():
    with kube_api() as server:
        server.add("persistentvolumeclaims", "training", **claim(MANY, "Pending", "nfs"))
        server.forbid("get", "storageclasses.storage.k8s.io")
        assert _row(server, 2, True).verdict == "note"
