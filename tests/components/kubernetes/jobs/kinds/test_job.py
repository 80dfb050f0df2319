"""An Indexed Job and its Service."""

import kubernetes_validate
import pytest
from job_requests import TOPOLOGIES, job_request

from stagecraft.components.kubernetes.jobs.kinds.job import JOB
from stagecraft.trainer_module.processes import exit_codes

VERSIONS = ("1.31", kubernetes_validate.latest_version())  # the first one that has a success policy


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_valid(topology, version):
    for made in JOB.render(job_request("job", topology)):
        kubernetes_validate.validate(made, version, strict=True)


def test_a_wrong_object_is_noticed():
    job = JOB.render(job_request("job"))[-1]
    job["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_service_finds_the_pods_and_names_them(topology):
    service, job = JOB.render(job_request("job", topology))
    pod = job["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["clusterIP"] == "None"
    assert pod["spec"]["subdomain"] == service["metadata"]["name"]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_chiefs_end_counts_where_others_serve(topology):
    request = job_request("job", topology)
    spec = JOB.render(request)[-1]["spec"]
    assert ("successPolicy" in spec) == (topology == "parameter-server") == bool(request.serves)
    if request.serves:
        assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}


def test_exit_codes_tell_what_is_for_good():
    spec = JOB.render(job_request("job"))[-1]["spec"]
    ignored, failing = spec["podFailurePolicy"]["rules"]
    assert (ignored["action"], failing["action"]) == ("Ignore", "FailJob")
    codes = failing["onExitCodes"]
    assert (
        codes["containerName"] == spec["template"]["spec"]["containers"][0]["name"] == JOB.container
    )
    assert codes["operator"] == "In"
    for code in range(1, 256):
        assert (code in codes["values"]) != exit_codes.retryable(code)
    # Kubernetes wants both with a failure policy.
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["podReplacementPolicy"] == "Failed"
