"""Two accelerators, shared memory and a volume for one step, and nothing for the rest."""

import compiled_by
import pytest
import tiny_nodes
import yaml
from compiled_by import EVERYTHING

from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.kubeflow.linter import check
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    compiled_by.ours(tiny_nodes.pipeline(), folder, steps={"Copy": EVERYTHING})
    text = (folder / "ours.yaml").read_text()
    assert check(text) == []
    return list(yaml.safe_load_all(text))


def test_the_container(documents):
    container = documents[0]["deploymentSpec"]["executors"]["Copy_executor"]["container"]
    assert container["image"] == EVERYTHING["image"]
    assert container["env"] == [{"name": "NCCL_DEBUG", "value": "INFO"}]
    assert container["resources"] == {
        # Older backends take numbers, memory in 10^9 bytes; newer ones prefer the quantities.
        "cpuLimit": 1.5,
        "resourceCpuLimit": "1500m",
        "memoryLimit": pytest.approx(17.179869184),
        "resourceMemoryLimit": "16Gi",
        "accelerator": {
            "count": "2",
            "type": "nvidia.com/gpu",
            "resourceCount": "2",
            "resourceType": "nvidia.com/gpu",
        },
    }
    policy = documents[0]["root"]["dag"]["tasks"]["Copy"]["retryPolicy"]
    assert policy["maxRetryCount"] == 3


def test_the_platform_document(documents):
    entries = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert entries.pop("Copy_executor") == {
        "imagePullPolicy": "IfNotPresent",
        "activeDeadlineSeconds": "3600",
        "nodeSelector": {"labels": {"accelerator": "a100"}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "emptyDirMounts": [
            {
                "volumeName": "shm",
                "mountPath": "/dev/shm",
                "medium": "Memory",
                "sizeLimit": "8Gi",
            }
        ],
        "pvcMount": [
            {
                "constant": "data",
                "mountPath": "/data",
                "subPath": "cifar",
            }
        ],
        "secretAsEnv": [
            {
                "secretName": "store",
                "keyToEnv": [{"secretKey": "accesskey", "envVar": "AWS_ACCESS_KEY_ID"}],
            }
        ],
    }
    assert entries == {"Make_executor": {"imagePullPolicy": "IfNotPresent"}}


def test_the_rest_gets_nothing(documents):
    container = documents[0]["deploymentSpec"]["executors"]["Make_executor"]["container"]
    assert container.keys() == {"image", "command", "args"}


def test_nothing_to_say_is_one_document(tmp_path):
    compiled = compiled_by.ours(tiny_nodes.pipeline(), tmp_path, image="mine:latest")
    assert "platformSpec" not in compiled
    assert len(list(yaml.safe_load_all((tmp_path / "ours.yaml").read_text()))) == 1


def policies(compiled):
    """The pull policy of each step that has one."""
    pods = compiled_by.pods(compiled)
    return {label: entry.get("imagePullPolicy") for label, entry in pods.items()}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        (None, "IfNotPresent"),
        ("mine:1", "IfNotPresent"),
        ("localhost:5000/team/mine:1", "IfNotPresent"),
        ("mine@sha256:" + "0" * 64, "IfNotPresent"),
        ("mine:latest@sha256:" + "0" * 64, "IfNotPresent"),
        ("mine:latest", None),
        ("mine", None),
        ("localhost:5000/mine", None),
        ("mine:latest-gpu", "IfNotPresent"),
    ],
)
def test_an_image_that_nodes_may_have_is_not_pulled(tmp_path, image, policy):
    """A warning names images that Kubernetes pulls again and again."""
    warnings = []
    settings = KubeflowSettings(**({"image": image} if image else {}))
    runner = KubeflowRunner(settings, str(tmp_path), on_warning=warnings.append)
    compiled = runner.run(tiny_nodes.pipeline())
    assert {*policies(compiled).values()} == ({policy} if policy else set())
    assert len(warnings) == (policy is None)
    for warning in warnings:
        assert warning.startswith(f"{image}: ")


def test_the_pull_policy_of_a_setting_counts(tmp_path):
    warnings = []
    settings = KubeflowSettings(image="mine", every_step={"image_pull_policy": "Always"})
    compiled = KubeflowRunner(settings, str(tmp_path), on_warning=warnings.append).run(
        tiny_nodes.pipeline()
    )
    assert ({*policies(compiled).values()}, warnings) == ({"Always"}, [])


def test_drivers_that_do_not_know_pull_policies_get_none(tmp_path):
    """They refuse unknown fields of the platform document."""
    for version, expected in (("2.0.5", set()), ("2.1", {"IfNotPresent"})):
        compiled = compiled_by.ours(tiny_nodes.pipeline(), tmp_path, backend_version=version)
        assert {*policies(compiled).values()} == expected


def test_the_step_before_one_with_a_driver_computes_nothing(tmp_path):
    step = {"gpus": 1, "memory": "2Gi", "secrets": EVERYTHING["secrets"]}
    compiled = compiled_by.ours(compiled_by.points(), tmp_path, steps={"CsvExampleGen": step})
    executors = compiled["pipelineSpec"]["deploymentSpec"]["executors"]
    before = executors["CsvExampleGen-inputs_executor"]["container"]["resources"]
    assert before == {"memoryLimit": pytest.approx(2.147483648), "resourceMemoryLimit": "2Gi"}
    entries = compiled_by.pods(compiled)
    assert entries["CsvExampleGen-inputs_executor"] == entries["CsvExampleGen_executor"]


def test_a_component_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="Trainr"):
        compiled_by.ours(tiny_nodes.pipeline(), tmp_path, steps={"Trainr": {"gpus": 2}})
    assert not (tmp_path / "ours.yaml").exists()


@pytest.mark.parametrize(
    ("setting", "value", "version"),
    [
        ("tolerations", [{"key": "gpu"}], "2.0.5"),
        ("timeout_seconds", 60, "2.0"),
        ("shared_memory", "1Gi", "2.2.0"),
        ("volumes", [{"claim": "c", "path": "/c", "sub_path": "x"}], "2.15"),
        ("volumes", [{"claim": "c", "path": "/c"}], None),
        ("shared_memory", "1Gi", None),
    ],
)
def test_a_setting_that_the_backend_does_not_know(tmp_path, setting, value, version):
    def compiled(version):
        pipeline = tiny_nodes.pipeline()
        steps = {"Copy": {setting: value}}
        compiled_by.ours(pipeline, tmp_path, steps=steps, backend_version=version)

    if version is None:
        compiled("2.3")
        return
    with pytest.raises(SettingError) as refused:
        compiled(version)
    assert refused.value.setting.startswith(f"kubeflow.steps.Copy.{setting}")
    compiled("2.16")
