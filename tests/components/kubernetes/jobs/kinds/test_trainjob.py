"""A TrainJob, and the runtime that it names."""

import copy
import json
import pathlib
from typing import Any

import kubernetes_validate
import pytest
import yaml
from job_requests import JOB, TOPOLOGIES, job_request
from kubeflow_trainer_api import models

from stagecraft.common.errors import SettingError
from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.kinds import trainjob
from stagecraft.components.kubernetes.jobs.kinds.job import JOB as INDEXED_JOB
from stagecraft.components.kubernetes.jobs.kinds.trainjob import RESTARTS, RUNTIME, TRAIN_JOB
from stagecraft.components.kubernetes.jobs.request import PORT, Json
from stagecraft.components.kubernetes.jobs.settings import JobSettings, PodSettings

MANIFEST = (
    pathlib.Path(__file__).resolve().parents[5]
    / "manifests" / "trainer-runtime" / "training-runtime.yaml"
)  # fmt: skip


def made(topology: str = "everything", **more: Any) -> Json:
    (job,) = TRAIN_JOB.render(job_request("trainjob", topology, **more))
    return job


@pytest.fixture
def runtime() -> Json:
    found: Json = yaml.safe_load(MANIFEST.read_text())
    return found


@pytest.fixture
def job(runtime: Json) -> Json:
    """The specification of the runtime's Job."""
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert (replicated["name"], replicated["replicas"]) == (TRAIN_JOB.container, 1)
    found: Json = replicated["template"]["spec"]
    return found


def check(model: Any, body: Json) -> None:
    """Its models pass over what they do not know: it is then not in what they say again."""
    assert without_defaults(model.from_dict(copy.deepcopy(body)).to_dict(), body) == body


def without_defaults(said: Any, given: Any) -> Any:
    """What the models say, but for a port's protocol, the one default that they add."""
    if isinstance(said, list):
        return [without_defaults(a, b) for a, b in zip(said, given, strict=True)]
    if not isinstance(said, dict):
        return said
    return {
        key: without_defaults(value, given.get(key))
        for key, value in said.items()
        if key in given or (key, value) != ("protocol", "TCP")
    }


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_trainer_reads_all_of_it(topology):
    check(models.TrainerV1alpha1TrainJob, made(topology))


def test_a_wrong_field_is_noticed(runtime):
    body = made()
    body["spec"]["trainer"]["nodes"] = 2
    with pytest.raises(AssertionError):
        check(models.TrainerV1alpha1TrainJob, body)
    runtime["spec"]["template"]["spec"]["networks"] = {}
    with pytest.raises(AssertionError):
        check(models.TrainerV1alpha1TrainingRuntime, runtime)


def test_the_runtime_is_valid(runtime, job):
    check(models.TrainerV1alpha1TrainingRuntime, runtime)
    assert runtime["metadata"]["name"] == RUNTIME
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": job}
    for version in ("1.31", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(body, version, strict=True)


def test_the_trainer_finds_what_it_looks_for(runtime, job):
    template = runtime["spec"]["template"]["spec"]
    # pkg/webhooks/trainingruntime_webhook.go
    labels = template["replicatedJobs"][0]["template"]["metadata"]["labels"]
    assert labels == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert [each["name"] for each in job["template"]["spec"]["containers"]] == ["node"]
    # Without a policy, numNodes and resourcesPerNode count for nothing
    # (pkg/runtime/core/trainingruntime.go, newRuntimeInfo).
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 1}
    # Deleted, the JobSet of a TrainJob that failed is made anew (pkg/controller/
    # trainjob_controller.go: removeFailedCondition, then reconcileObjects).
    assert "ttlSecondsAfterFinished" not in template


def test_the_runtime_is_what_an_indexed_job_is(job):
    rendered = INDEXED_JOB.render(job_request("job", "parameter-server"))[-1]["spec"]
    for field in ("completionMode", "podReplacementPolicy", "successPolicy"):
        assert job[field] == rendered[field]
    text = json.dumps(rendered["podFailurePolicy"])
    text = text.replace(f'"{INDEXED_JOB.container}"', f'"{TRAIN_JOB.container}"')
    assert job["podFailurePolicy"] == json.loads(text)
    assert (job["backoffLimitPerIndex"], job["maxFailedIndexes"]) == (RESTARTS, 0)

    ours, theirs = job["template"]["spec"], rendered["template"]["spec"]
    (container,), (other,) = ours.pop("containers"), theirs.pop("containers")
    theirs.pop("subdomain")  # JobSet's
    assert ours == theirs
    assert container["ports"] == other["ports"] == [{"name": "tfjob-port", "containerPort": PORT}]
    assert container["securityContext"] == other["securityContext"]
    assert job["template"]["metadata"]["annotations"] == pods.ANNOTATIONS


def test_each_setting_has_its_place():
    request = job_request("trainjob", "everything")
    spec = made()["spec"]
    assert spec["runtimeRef"]["kind"] == "TrainingRuntime"
    assert spec["trainer"]["numNodes"] == request.count == 3
    assert spec["trainer"]["image"] == request.pod.image
    assert spec["activeDeadlineSeconds"] == JOB["deadline_seconds"]
    (patch,) = spec["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template = replicated["template"]["spec"]["template"]
    assert template["metadata"]["labels"] == {"stagecraft.dev/job": request.name}
    pod = template["spec"]
    assert pod["serviceAccountName"] == JOB["service_account"]
    (container,) = pod["containers"]
    # Env in the patch of this container is refused (pkg/runtime/framework/plugins/jobset).
    assert set(container) == {"name", "volumeMounts"}
    # The list's key is the name (pkg/apis/trainer/v1alpha1/trainjob_types.go, ContainerPatch).
    names = [mount["name"] for mount in container["volumeMounts"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("setting", "value", "more"),
    [
        ("kubeflow.job.priority_class", "high", {"job": JobSettings(priority_class="high")}),
        ("kubeflow.job.ttl_seconds", 600, {"job": JobSettings(ttl_seconds=600)}),
        (
            "kubeflow.steps.Trainer.image_pull_policy",
            "Always",
            {"pod": PodSettings(image_pull_policy="Always")},
        ),
        ("parallel.max_restarts", 2, {"max_restarts": 2}),
        (
            "kubeflow.steps.Trainer.volumes",
            "training",
            {
                "pod": PodSettings.model_validate(
                    {"volumes": [{"claim": "training", "path": path} for path in ("/a", "/b")]}
                )
            },
        ),
    ],
)
def test_settings_without_a_field_are_refused(setting, value, more):
    with pytest.raises(SettingError) as caught:
        made("in-step", **more)
    assert (caught.value.setting, caught.value.value) == (setting, value)
    assert caught.value.suggestion.endswith("kubeflow.job.kind: job")


def test_no_settings_field_is_forgotten():
    """Each is in the TrainJob, or in what is refused, or somebody else's."""
    source = "".join(pathlib.Path(str(each.__file__)).read_text() for each in (trainjob, pods))
    elsewhere = {"kind", "folder", "lease_seconds", "queue"}
    for field in {*JobSettings.model_fields, *PodSettings.model_fields} - elsewhere:
        assert field in source, field
