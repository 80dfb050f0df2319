"""Quotas and limits of a namespace against what a topology asks for."""

from typing import Any

import pytest
from job_requests import TOPOLOGIES, job_request
from kube_api import kube_api
from kubernetes import client

from stagecraft.components.kubernetes import capacity
from stagecraft.components.kubernetes.api.reader import CheckResult, Reader
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS, PodSettings

POD = {"cpu": "8", "memory": "64Gi", "gpus": 2}
SERVER = {"topology": "parameter-server"}  # a chief, two workers, a ps and an evaluator


def found(
    pod: dict[str, Any],
    *,
    hard: dict[str, str] | None = None,
    used: dict[str, str] | None = None,
    limits: list[dict[str, Any]] | None = None,
    kind: str = "job",
    topology: str = "in-step",
    **spec: Any,
) -> list[CheckResult]:
    with kube_api() as server:
        if hard is not None:
            status = {"hard": hard, "used": used or {}}
            server.add("resourcequotas", "team", spec={"hard": hard, **spec}, status=status)
        if limits is not None:
            server.add("limitranges", "team", spec={"limits": limits})
        configuration = client.Configuration(host=server.url)
        configuration.api_key["authorization"] = "Bearer token"
        request = job_request(kind, pod=PodSettings.model_validate(pod), **TOPOLOGIES[topology])
        reader = Reader(client.ApiClient(configuration))
        return list(capacity.check(reader, request, CLUSTER_JOBS.get(kind)))


def test_a_namespace_without_any():
    [row] = found(POD)
    assert row.verdict == "ok" and "has no ResourceQuota" in row.found


@pytest.mark.parametrize(
    ("hard", "used", "more", "verdict", "said"),
    [
        ({"pods": "10"}, {"pods": "8"}, {}, "ok", "pods 2 of 2 free"),
        ({"pods": "10"}, {"pods": "9"}, {}, "missing", "too little: pods 2 of 1 free"),
        ({"cpu": "16"}, {}, {}, "ok", "cpu 16 of 16 free"),
        ({"requests.cpu": "16"}, {"requests.cpu": "1500m"}, {}, "missing", "16 of 14.5 free"),
        ({"limits.memory": "100Gi"}, {}, {}, "missing", "limits.memory 128Gi of 100Gi free"),
        ({"requests.nvidia.com/gpu": "4"}, {}, {}, "ok", "gpu 4 of 4 free"),
        # A Job's pods are all alike; a TFJob's ps has no GPU, and its evaluator one.
        ({"requests.nvidia.com/gpu": "7"}, {}, SERVER, "missing", "gpu 10 of 7 free"),
        ({"requests.nvidia.com/gpu": "7"}, {}, SERVER | {"kind": "tfjob"}, "ok", "gpu 7 of 7"),
        ({"count/jobs.batch": "0"}, {}, {}, "missing", "count/jobs.batch 1 of 0 free"),
        ({"secrets": "0"}, {}, {}, "ok", "limits nothing"),
        ({"pods": "1"}, {}, {"scopes": ["BestEffort"]}, "note", "only some pods"),
    ],
)
def test_quotas(hard, used, more, verdict, said):
    [row] = found(POD, hard=hard, used=used, **more)
    assert (row.name, row.verdict) == ("quota team", verdict) and said in row.found


def test_a_quota_refuses_pods_that_say_nothing():
    [row] = found({}, hard={"limits.cpu": "100", "requests.nvidia.com/gpu": "0"})
    assert (row.verdict, row.found) == ("missing", "refuses pods without limits.cpu")
    assert row.advice.startswith("set kubeflow.steps.Trainer.cpu, or")
    [row] = found(POD, hard={"requests.ephemeral-storage": "1Gi"})
    assert "LimitRange" in row.advice


def test_a_limit_range_says_it_for_them():
    default = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m"}}
    limits, quota = found({}, hard={"limits.cpu": "4", "requests.cpu": "1"}, limits=[default])
    assert limits.verdict == quota.verdict == "ok"
    assert quota.found == "limits.cpu 4 of 4 free, requests.cpu 1 of 1 free"


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "Container", "max": {"cpu": "4"}}, "of a pod: cpu 8, at most 4"),
        ({"type": "Pod", "max": {"memory": "32Gi"}}, "of a pod: memory 64Gi, at most 32Gi"),
        ({"type": "Container", "min": {"cpu": "10"}}, "of a pod: cpu 8, at least 10"),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, "each pod fits"),
        ({"type": "Container", "max": {"cpu": "8"}}, "each pod fits"),
    ],
)
def test_limits(item, said):
    row, _ = found(POD, limits=[item])
    assert row.found == said
    assert row.verdict == "ok" or row.advice.startswith("set kubeflow.steps.Trainer.")
