"""What the Trainer's step may do: asked about it, or about whoever asks."""

import pathlib
import re
from typing import Any

import pytest
import yaml
from job_requests import OWNER, job_request
from kube_api import KubeApi, Request
from kube_api.errors import ApiError
from kube_api.kubelet import PODS

from stagecraft.components.kubernetes import preflight
from stagecraft.components.kubernetes.api.connection import Refused
from stagecraft.components.kubernetes.api.reader import CheckResult, Reader
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS
from stagecraft.components.kubernetes.launch import training_job
from stagecraft.components.kubernetes.launch.leases import ClusterLease
from stagecraft.components.kubernetes.launch.training_job import TrainingJob

NS = "kubeflow"
ROLE = pathlib.Path(__file__).resolve().parents[3] / "manifests" / "base" / "training-access.yaml"
CRDS = {
    "tfjob": ("kubeflow.org/v1", "TFJob"),
    "trainjob": ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
}
_PATH = re.compile(r"/apis?/(?:v1|([^/]+)/[^/]+)/namespaces/kubeflow/(\w+)(/[^/]+)?(/log)?")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def rows(client: Any, account: str | None) -> dict[str, CheckResult]:
    found = preflight.check_access(Reader(client), NS, CLUSTER_JOBS.get("job"), account)
    return {row.name: row for row in found}


def test_permissions(server, client):
    server.forbid("patch", "jobs.batch")
    server.forbid("get", "pods/log")
    found = rows(client, None)
    assert {name for name, row in found.items() if row.verdict == "missing"} == {"jobs"}
    assert "manifests/base/training-access.yaml" in found["jobs"].advice
    assert found["pods/log"].verdict == "note" and found["permissions"].verdict == "note"


def test_permissions_of_a_service_account(server, client):
    server.forbid("list", "pods")
    found = rows(client, "runner")
    asked = [each for each in server.requests if "localsubject" in each.path]
    assert {each.body["spec"]["user"] for each in asked} == {
        "system:serviceaccount:kubeflow:runner"
    }
    assert "an access review" in found["permissions"].found


def test_who_may_not_ask_impersonates(server, client):
    server.forbid("create", "localsubjectaccessreviews.authorization.k8s.io")
    found = rows(client, "runner")
    assert "by impersonation" in found["permissions"].found and found["pods"].verdict == "ok"
    asked = [each for each in server.requests if "selfsubject" in each.path]
    assert {each.user for each in asked} == {"system:serviceaccount:kubeflow:runner"}
    server.forbid("impersonate", "serviceaccounts")
    with pytest.raises(Refused, match="impersonate") as error:
        rows(client, "runner")
    assert error.value.status == 403


@pytest.mark.parametrize("kind", ["job", "tfjob", "trainjob"])
def test_the_role_has_what_is_asked_about(kind):
    role, _ = yaml.safe_load_all(ROLE.read_text())
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    for each in preflight.needed_permissions(CLUSTER_JOBS.get(kind)):
        assert {(each.group, each.resource, verb) for verb in each.verbs} <= granted


class Trainings:
    """Trainings of one name, one after the other, and the cluster that they are on."""

    def __init__(self, server: KubeApi, client: Any, kind: str) -> None:
        if kind in CRDS:
            version, name = CRDS[kind]
            server.install(version, f"{kind}s", name)
        self.server, self.client, self.kind = server, client, kind
        self.entry = CLUSTER_JOBS.get(kind)
        self.job = next(r for r in server.resources.values() if r.plural == f"{kind}s")

    def run(self, **more: Any) -> None:
        request = job_request(self.kind, **more)
        roles = ["worker 0", "worker 1"]
        silent: dict[str, Any] = {"write_log": lambda line: None, "sleep": self.go_on}
        objects = self.entry.render(request)
        TrainingJob(self.client, NS, self.entry, objects, roles, **silent).run()

    def end(self, condition: str) -> None:
        job = self.server.store.get(self.job, NS, "training-1")
        job["status"] = {"conditions": [{"type": condition, "status": "True"}]}
        self.server.store.replace(self.job, NS, "training-1", job)

    def go_on(self, seconds: float) -> None:
        """Something more happens: a pod begins, and ends, and with it the job."""
        try:
            self.server.store.get(self.job, NS, "training-1")
        except ApiError:
            return
        try:
            pod = self.server.store.get(PODS, NS, "x")
        except ApiError:
            label = {"stagecraft.dev/job": "training-1"}
            self.server.add_pod("x", label, [self.entry.container])
            return
        if pod["status"]["phase"] == "Running":
            self.server.finish("x")
        else:
            self.end(self.entry.succeeded)


@pytest.mark.parametrize("kind", ["job", "tfjob", "trainjob"])
def test_it_is_what_a_training_asks_for(server, client, kind, monkeypatch):
    """One that replaces what an attempt before has left, and one that goes on with it."""
    monkeypatch.setattr(training_job, "EVENTS_SECONDS", -1.0)
    trainings = Trainings(server, client, kind)
    server.add(f"{kind}s", "training-1")
    server.add("services", "training-1")
    trainings.end("Failed")
    trainings.run()
    trainings.end("Running")
    trainings.run(owner=OWNER)
    lease = ClusterLease(client, NS, "/checkpoints", name="", seconds=60.0, grace=0.0)
    lease.claim()
    lease.renew()
    lease.release()
    asked = {found for each in server.requests if (found := permission(each))}
    needed = preflight.needed_permissions(CLUSTER_JOBS.get(kind))
    assert asked == {(each.group, each.resource, verb) for each in needed for verb in each.verbs}


def permission(request: Request) -> tuple[str, str, str] | None:
    found = _PATH.fullmatch(request.path)
    if not found:
        return None
    group, plural, name, log = found.groups()
    listed = "watch" if "watch" in request.query else "list"
    verb = _VERBS.get(request.method, "get" if name else listed)
    return group or "", plural + (log or ""), verb
