"""A TFJob, as the training operator reads it."""

import json
import os
import pathlib
import subprocess
import sys

import kubernetes_validate
import pytest
from job_requests import TOPOLOGIES, job_request

from stagecraft.components.kubernetes.jobs.kinds.tfjob import TF_JOB
from stagecraft.components.kubernetes.jobs.request import Json

SDK = "kubeflow-training==1.9.4"

READ = """
import json, sys, types
from kubeflow.training.api_client import ApiClient

client = ApiClient()
for line in sys.stdin:
    model = client.deserialize(types.SimpleNamespace(data=line), "KubeflowOrgV1TFJob")
    print(json.dumps(client.sanitize_for_serialization(model)))
"""


def spec(topology: str, **more: object) -> Json:
    (made,) = TF_JOB.render(job_request("tfjob", topology, **more))
    found: Json = made["spec"]
    return found


def test_there_are_replicas_of_each_kind():
    replicas = spec("parameter-server")["tfReplicaSpecs"]
    counts = {name: each["replicas"] for name, each in replicas.items()}
    assert counts == {"Chief": 1, "Worker": 2, "PS": 1, "Evaluator": 1}
    (alone,) = spec("in-step", processes={"worker": 1})["tfReplicaSpecs"].values()
    assert alone["replicas"] == 1  # the operator gives it no TF_CONFIG


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_pods_are_as_the_operator_wants_them(topology):
    for each in spec(topology)["tfReplicaSpecs"].values():
        assert each["restartPolicy"] == "ExitCode"
        pod = each["template"]["spec"]
        assert "restartPolicy" not in pod  # overwritten, with a warning
        (container,) = pod["containers"]
        assert container["name"] == "tensorflow"
        assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
        assert "TF_CONFIG" not in [variable["name"] for variable in container["env"]]
        annotations = each["template"]["metadata"]["annotations"]
        assert annotations == {"sidecar.istio.io/inject": "false"}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_its_pods_are_valid(topology):
    for each in spec(topology)["tfReplicaSpecs"].values():
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**each["template"]["metadata"], "name": "x"},
            "spec": each["template"]["spec"],
        }
        for version in ("1.29", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(pod, version, strict=True)


def test_nothing_stays_behind():
    assert spec("everything")["runPolicy"] == {
        "cleanPodPolicy": "Running",
        "activeDeadlineSeconds": 86_400,
        "ttlSecondsAfterFinished": 600,
        "backoffLimit": 9,
    }
    # Only 0 limits anything.
    assert spec("in-step", max_restarts=0)["runPolicy"]["backoffLimit"] == 0
    # The operator does not look at the clock by itself, the kubelet does.
    for each in spec("everything")["tfReplicaSpecs"].values():
        assert each["template"]["spec"]["activeDeadlineSeconds"] == 86_400


def test_kinds_get_the_gpus_that_they_have_a_use_for():
    pod = job_request("tfjob", "everything").pod
    found = {
        name: each["template"]["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")
        for name, each in spec("parameter-server", pod=pod)["tfReplicaSpecs"].items()
    }
    assert found == {"Chief": "2", "Worker": "2", "PS": None, "Evaluator": "1"}


@pytest.mark.slow
def test_the_operators_sdk_reads_all_of_it(tmp_path):
    uv = pathlib.Path(sys.executable).with_name("uv")
    environment = tmp_path / "sdk"
    clean = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    for words in (
        ["venv", "--python", sys.executable, environment],
        ["pip", "install", "--python", environment, SDK],
    ):
        done = subprocess.run([uv, *words], capture_output=True, text=True, env=clean)
        assert done.returncode == 0, done.stderr[-2000:]
    jobs = [job for topology in TOPOLOGIES for job in TF_JOB.render(job_request("tfjob", topology))]
    wrong = json.loads(json.dumps(jobs[0]))
    wrong["spec"]["cleanPodPolicy"] = "Running"
    done = subprocess.run(
        [environment / "bin" / "python", "-c", READ],
        input="".join(f"{json.dumps(job)}\n" for job in [*jobs, wrong]),
        capture_output=True,
        text=True,
        env=clean,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *read, lost = [json.loads(line) for line in done.stdout.splitlines()]
    assert read == jobs
    assert lost == jobs[0]  # what it does not know is not in what it says again
