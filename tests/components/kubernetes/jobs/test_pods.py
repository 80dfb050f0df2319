"""What is the same in the jobs of all kinds."""

import json
from typing import Any

import pytest
from job_requests import KINDS, POD, every_request, job_request

from stagecraft.components.kubernetes.jobs.request import JobRequest, Json
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS, PodSettings


def render(request: JobRequest) -> list[Json]:
    objects: list[Json] = CLUSTER_JOBS.get(request.job.kind).render(request)
    return objects


def found(value: Any, key: str) -> list[Any]:
    """All values of a key, at any depth."""
    if isinstance(value, dict):
        deeper = [each for child in value.values() for each in found(child, key)]
        return [*([value[key]] if key in value else []), *deeper]
    return [each for child in value for each in found(child, key)] if type(value) is list else []


@pytest.mark.parametrize(("kind", "topology"), every_request())
def test_every_object_can_be_found_and_goes_with_its_owner(kind, topology):
    request = job_request(kind, topology)
    for made in render(request):
        metadata = made["metadata"]
        assert (metadata["name"], metadata["namespace"]) == (request.name, request.namespace)
        assert metadata["labels"] == request.labels
        assert metadata.get("ownerReferences", []) == ([request.owner] if request.owner else [])
        json.dumps(made)  # nothing but JSON


@pytest.mark.parametrize("kind", KINDS)
def test_secrets_are_names(kind):
    for env in found(render(job_request(kind, "everything")), "env"):
        secrets = {each["name"]: each["valueFrom"] for each in env if "valueFrom" in each}
        assert secrets == {
            secret.env: {"secretKeyRef": {"name": secret.name, "key": secret.key}}
            for secret in POD.secrets
        }
        assert all(set(each) == {"name", "value"} for each in env if each["name"] not in secrets)


@pytest.mark.parametrize("kind", KINDS)
def test_every_mount_has_its_volume(kind):
    made = render(job_request(kind, "everything"))
    volumes, mounts = found(made, "volumes"), found(made, "volumeMounts")
    assert len(volumes) == len(mounts) > 0
    for have, used in zip(volumes, mounts, strict=True):
        assert {each["name"] for each in have} == {each["name"] for each in used}
        assert {each["mountPath"] for each in used} == {"/mnt/training", "/mnt/data", "/dev/shm"}


def test_a_claim_that_is_mounted_twice_is_one_volume():
    volumes = [{"claim": "a", "path": path} for path in ("/x", "/y")]
    pod = PodSettings.model_validate({"volumes": volumes})
    made: Json = render(job_request("job", pod=pod))[-1]
    assert len(found(made, "volumes")[0]) == 1
    assert [each["name"] for each in found(made, "volumeMounts")[0]] == ["claim-0", "claim-0"]
