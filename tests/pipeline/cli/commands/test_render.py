"""``stagecraft render``."""

import pytest
import yaml

from stagecraft.pipeline.settings.kubeflow import DEFAULT_IMAGE, OWN_STORE

FOLDER = (
    "--set=kubeflow.job.folder=/mnt/training/jobs",
    "--set=kubeflow.steps.Trainer.volumes=[{claim: training, path: /mnt/training}]",
)
PARAMETER_SERVER = (
    "--set=parallel.strategy=parameter_server",
    "--set=parallel.workers=2",
    "--set=parallel.ps=1",
    "--set=parallel.evaluator=true",
)
COMMAND = ["python", "-m", "stagecraft.components.kubernetes.worker"]


def objects(stagecraft, *arguments):
    ran = stagecraft("render", *FOLDER, *arguments)
    assert (ran.code, ran.stderr) == (0, "")
    return list(yaml.safe_load_all(ran.stdout))


@pytest.mark.parametrize(
    ("launcher", "kinds"),
    [("job", ["Service", "Job"]), ("tfjob", ["TFJob"]), ("trainjob", ["TrainJob"])],
)
def test_objects_of_each_kind(stagecraft, launcher, kinds):
    asked = ("--launcher", launcher, "--name", "t-1", "--namespace", "team", "--image", "i:1")
    made = objects(stagecraft, *asked)
    assert [each["kind"] for each in made] == kinds
    for each in made:
        assert (each["metadata"]["name"], each["metadata"]["namespace"]) == ("t-1", "team")
    text = yaml.safe_dump(made[-1])
    assert "image: i:1" in text and DEFAULT_IMAGE not in text
    assert "claimName: training" in text


def test_the_kind_is_a_setting(stagecraft):
    (made,) = objects(stagecraft, "--set=kubeflow.job.kind=tfjob")
    assert (made["kind"], made["metadata"]["name"]) == ("TFJob", "quickstart")
    (container,) = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["image"] == DEFAULT_IMAGE
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["command"] == [*COMMAND, "/mnt/training/jobs/quickstart"]


def test_pods_with_a_folder_in_kubeflows_own_store_get_its_keys(stagecraft):
    (made,) = objects(
        stagecraft, "--set=kubeflow.job.folder=minio://mlpipeline/jobs", "--launcher=tfjob"
    )
    (container,) = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    secrets = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]["name"]
        for entry in container["env"]
        if "valueFrom" in entry
    }
    assert secrets == {secret.env: secret.name for secret in OWN_STORE}


def test_a_topology_is_its_processes(stagecraft):
    (made,) = objects(stagecraft, *PARAMETER_SERVER, "--launcher=tfjob")
    replicas = made["spec"]["tfReplicaSpecs"]
    counts = {name: each["replicas"] for name, each in replicas.items()}
    assert counts == {"Chief": 1, "Worker": 2, "PS": 1, "Evaluator": 1}
    _, job = objects(stagecraft, *PARAMETER_SERVER, "--launcher=job")
    assert job["spec"]["completions"] == 5 and "successPolicy" in job["spec"]
    _, alone = objects(stagecraft)
    assert alone["spec"]["completions"] == 1 and "successPolicy" not in alone["spec"]


def test_pods_get_what_the_trainers_step_gets(stagecraft):
    given = ("--set=kubeflow.every_step.env={A: b}", "--set=kubeflow.steps.Trainer.memory=8Gi")
    _, job = objects(stagecraft, *given)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {"name": "A", "value": "b"} in container["env"]
    assert container["resources"]["limits"] == {"memory": "8Gi"}


@pytest.mark.parametrize(
    "arguments",
    [
        FOLDER[1:],
        FOLDER[:1],
        (*FOLDER, "--name=My_Job"),
        (*FOLDER, "--namespace=A"),
        (*FOLDER, "--launcher=trainjob", "--set=kubeflow.job.priority_class=high"),
        (*FOLDER, "--machine-type=n1-standard-8"),
        ("--set=kubeflow.job.kind=ray",),
    ],
)
def test_errors(stagecraft, arguments):
    ran = stagecraft("render", *arguments)
    assert (ran.code, ran.stdout) == (1, "")


def test_pools_of_vertex_ai(stagecraft):
    given = ("--launcher=vertex", "--machine-type=n1-standard-8", "--machine-type=ps=n1-highmem-4")
    ran = stagecraft("render", *PARAMETER_SERVER, *given, "--image=i:1")
    assert (ran.code, ran.stderr) == (0, "")
    made = yaml.safe_load(ran.stdout)["worker_pool_specs"]
    types = [pool["machine_spec"]["machine_type"] for pool in made]
    assert types == ["n1-standard-8", "n1-standard-8", "n1-highmem-4", "n1-standard-8"]
    assert {pool["container_spec"]["image_uri"] for pool in made} == {"i:1"}


def test_a_manifest_has_its_secrets_and_a_warning(stagecraft):
    env = "--set=kubeflow.steps.Trainer.env={HF_TOKEN: c4n4ry, AT: 'https://me:c4n4ry@host'}"
    ran = stagecraft("render", *FOLDER, env)
    assert ran.code == 0
    assert "value: c4n4ry" in ran.stdout and "https://me:c4n4ry@host" in ran.stdout
    assert "c4n4ry" not in ran.stderr
    assert ran.stderr.startswith("Warning: the manifest ")
    assert "Trainer.env.HF_TOKEN, " in ran.stderr and "Trainer.env.AT" in ran.stderr
