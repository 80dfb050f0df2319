"""What a cluster has, and has not, of what a training needs."""

import dataclasses
import pathlib
from typing import Any

import kubernetes
import pytest
import yaml
from job_requests import POD, job_request
from kube_api import KubeApi

from stagecraft.components.kubernetes import preflight
from stagecraft.components.kubernetes.api.connection import Refused, Unreachable, connect
from stagecraft.components.kubernetes.api.reader import CheckResult
from stagecraft.components.kubernetes.jobs.settings import JobSettings, PodSettings
from stagecraft.components.kubernetes.preflight import PlannedTraining

POLICY = yaml.safe_load(
    (pathlib.Path(__file__).parents[3] / "manifests/base/training-network.yaml").read_text()
)
DIGEST = "registry.example.com/stagecraft@sha256:0123"
MOUNT = {"volumes": [{"claim": "training", "path": "/mnt/training"}]}
SHARED = {"spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound"}}


@pytest.fixture(autouse=True)
def ready(server: KubeApi) -> None:
    """All that the training of ``rows`` needs."""
    server.add("namespaces", "kubeflow")
    server.add("persistentvolumeclaims", "training", **SHARED)
    server.add("networkpolicies", "stagecraft-training", spec=POLICY["spec"])


def wanted(
    kind: str = "job",
    topology: str = "in-step",
    pod: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
    **more: Any,
) -> PlannedTraining:
    """A training that finds everything."""
    request = job_request(
        kind,
        topology,
        image=DIGEST,
        pod=PodSettings.model_validate(MOUNT | (pod or {})),
        job=JobSettings.model_validate({"kind": kind} | (job or {})),
    )
    fields = {
        "folder": "/mnt/training/jobs",
        "checkpoints": "/mnt/training/checkpoints",
        "default_image": "stagecraft:1",
    }
    return PlannedTraining(request=request, **(fields | more))


def rows(client: kubernetes.client.ApiClient, *given: Any, **more: Any) -> dict[str, CheckResult]:
    found = list(preflight.check_cluster(client, wanted(*given, **more)))
    assert len({row.name for row in found}) == len(found)
    return {row.name: row for row in found}


def failing(found: dict[str, CheckResult]) -> set[str]:
    return {name for name, row in found.items() if row.verdict == "missing"}


def test_all_is_well(server, client):
    found = rows(client, account="pipeline-runner")
    assert {row.verdict for row in found.values()} == {"ok"}, found
    assert found["api"].found == f"Kubernetes 1.33 at {server.url}"
    assert found["kind"].found == "jobs.batch/v1, of v1"
    assert found["job"].found == "job of 2 worker"
    assert {each.method for each in server.requests} == {"GET", "POST"}
    assert all("accessreviews" in each.path for each in server.requests if each.method == "POST")


@pytest.mark.parametrize(
    ("kind", "topology", "minor", "verdict", "advice"),
    [
        ("job", "in-step", "30", "ok", ""),
        ("job", "parameter-server", "30+", "missing", "use kubeflow.job.kind: tfjob"),
        ("tfjob", "parameter-server", "30", "ok", ""),
        ("trainjob", "in-step", "30", "missing", "use kubeflow.job.kind: job"),
        ("trainjob", "parameter-server", "31", "ok", ""),
        ("job", "in-step", "28", "note", "checked against 1.29"),
    ],
)
def test_versions(server, client, kind, topology, minor, verdict, advice):
    server.version["minor"] = minor
    found = rows(client, kind, topology)["api"]
    assert found.verdict == verdict and advice in found.advice


OPEN: list[dict[str, Any]] = [
    {"ingress": [{}]},
    {"ingress": [{"ports": [{"port": 2222}]}]},
    {"ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]},
    {"ingress": [{"from": [{"namespaceSelector": {}}]}], "policyTypes": ["Ingress"]},
]


def test_a_network_policy(server, client):
    assert rows(client)["network"].verdict == "ok"
    api = kubernetes.client.NetworkingV1Api(client)
    api.delete_namespaced_network_policy("stagecraft-training", "kubeflow")
    found = rows(client)
    assert not failing(found)
    assert found["network"].verdict == "note"
    assert "manifests/base/training-network.yaml" in found["network"].advice
    # Of other pods, and of connections that pods make.
    other = {"podSelector": {"matchLabels": {"app": "web"}}}
    server.add("networkpolicies", "web", spec=other)
    server.add("networkpolicies", "egress", spec={"podSelector": {}, "policyTypes": ["Egress"]})
    assert rows(client)["network"].verdict == "note"
    server.add("networkpolicies", "nobody", spec={"podSelector": {}})
    assert rows(client)["network"].found == "NetworkPolicy nobody"


@pytest.mark.parametrize("rules", OPEN)
def test_a_network_policy_that_lets_everybody_in(rules, server, client):
    server.add("networkpolicies", "open", spec={"podSelector": {}, **rules})
    found = rows(client)["network"]
    assert found.verdict == "note" and "open" in found.found


def test_an_operator(server, client):
    assert failing(rows(client, "tfjob")) == {"kind"}
    server.install("kubeflow.org/v1", "profiles", "Profile")  # the group is Kubeflow's as a whole
    found = rows(client, "tfjob")
    assert failing(found) == {"kind"}
    assert "Training Operator 1.x" in found["kind"].advice
    server.install("kubeflow.org/v1", "tfjobs", "TFJob")
    assert not failing(rows(client, "tfjob"))


def test_a_runtime(server, client):
    server.install("trainer.kubeflow.org/v2", "trainjobs", "TrainJob")
    found = rows(client, "trainjob")
    assert failing(found) == {"kind", "runtime"}
    assert "kubectl apply -k manifests/trainer-runtime" in found["runtime"].advice
    server.install("trainer.kubeflow.org/v1alpha1", "trainjobs", "TrainJob")
    server.install("trainer.kubeflow.org/v1alpha1", "trainingruntimes", "TrainingRuntime")
    server.add("trainingruntimes", "stagecraft")
    assert not failing(rows(client, "trainjob"))
    found = rows(client, "trainjob", job={"priority_class": "high"})
    assert failing(found) == {"job", "priority"}
    assert "kubeflow.job.priority_class: high" in found["job"].advice


def test_images(client):
    for image, advice in (
        ("stagecraft:1", "on each node"),
        ("mine:latest", "a version as its tag"),
    ):
        found = rows(client, pod={"image": image})["image"]
        assert found.verdict == "note" and advice in found.advice
    assert "digest" in rows(client, pod={"image": "registry.example.com/s:1"})["image"].advice


def test_folders(client):
    found = rows(client, folder="", checkpoints="checkpoints")
    assert failing(found) == {"folder", "checkpoints"}
    assert found["folder"].advice.removeprefix("set ") == "kubeflow.job.folder=/mnt/training/jobs"
    found = rows(client, pod={"volumes": []})
    assert found["folder"].advice.startswith("set kubeflow.steps.Trainer.volumes")


def test_what_settings_name(server, client):
    job = {"service_account": "trainer", "priority_class": "high", "queue": "vision"}
    found = rows(client, job=job)
    assert failing(found) == {"account", "priority", "queue"}
    assert "kubeflow.job.priority_class" in found["priority"].advice
    server.add("serviceaccounts", "trainer")
    server.add("priorityclasses", "high")
    server.install("kueue.x-k8s.io/v1beta1", "localqueues", "LocalQueue")
    assert "no LocalQueue vision" in rows(client, job=job)["queue"].found
    inactive = {"type": "Active", "status": "False", "message": "Can't submit new workloads"}
    server.add("localqueues", "vision", status={"conditions": [inactive]})
    assert "Can't submit" in rows(client, job=job)["queue"].found
    server.add("localqueues", "other")
    assert not failing(rows(client, job=job | {"queue": "other"}))


def test_a_namespace_that_is_not_there(client):
    asked = wanted()
    elsewhere = dataclasses.replace(asked.request, namespace="team")
    found = {
        row.name: row
        for row in preflight.check_cluster(client, dataclasses.replace(asked, request=elsewhere))
    }
    assert {"namespace", "claim training"} <= failing(found)


def test_what_may_not_be_looked_at_is_a_note(server, client):
    for verb, resource in (
        ("get", "namespaces"),
        ("list", "limitranges"),
        ("get", "persistentvolumeclaims"),
        ("get", "priorityclasses.scheduling.k8s.io"),
    ):
        server.forbid(verb, resource)
    found = rows(client, job={"priority_class": "high"})
    noted = {name for name, row in found.items() if row.verdict == "note"}
    assert noted == {"permissions", "namespace", "limits", "claim training", "priority"}
    assert "may not read" in found["limits"].found and not failing(found)


def test_no_answer_and_no_credentials(server, tmp_path, monkeypatch):
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(path, token="old")))
    with pytest.raises(Refused, match="expired"):
        rows(connect())
    server.url = "http://127.0.0.1:1"
    server.kubeconfig(path)
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1"):
        rows(connect())


def test_a_server_that_fails_is_no_note(server, client):
    server.fail("GET", "resourcequotas", 500, "InternalError", "etcd is away", times=None)
    with pytest.raises(Refused, match="etcd is away"):
        rows(client)


def test_a_training_with_everything(server, client):
    """Every row that may be asked for is found missing, and says what to do."""
    found = rows(client, pod=POD.model_dump(), job={"queue": "vision"})
    assert failing(found) == {"claim data", "queue"}
    assert all(row.advice for row in found.values() if row.verdict != "ok")
