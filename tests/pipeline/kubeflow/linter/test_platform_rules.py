"""One change to an accepted file for each rule about the platform document."""

import re

import pytest

from stagecraft.pipeline.kubeflow.linter import check

POD = "platforms.kubernetes.deploymentSpec.executors.exec-train"
CONSTANT = {"runtimeValue": {"constant": "name"}}


VOLUME = {"volumeName": "a", "mountPath": "/a"}
CLAIM = {"constant": "data", "mountPath": "/data"}
SHM = {"volumeName": "shm", "mountPath": "/dev/shm"}


def _secret(name="s", key="k", variable="V"):
    return [{"secretName": name, "keyToEnv": [{"secretKey": key, "envVar": variable}]}]


CASES = [
    ("platform-field", "nodeSelectors", {}),
    ("platform-field", "nodeSelector.labels.gpu", {"labels": {"gpu": 1}}),
    ("platform-field", "tolerations", {}),
    ("platform-field", "securityContext.privileged", {"privileged": 1}),
    ("platform-ignored", "enabledSharedMemory", {"size": "1Gi"}),
    ("platform-ignored", "podAffinity", [{"topologyKey": "zone"}]),
    ("image-pull-policy", "imagePullPolicy", "Sometimes"),
    ("active-deadline", "activeDeadlineSeconds", 0),
    ("security-context", "securityContext", {"runAsUser": "0", "runAsNonRoot": True}),
    ("secret-name", "secretAsEnv[0]", [{"keyToEnv": [{"secretKey": "a", "envVar": "A"}]}]),
    (
        "secret-name",
        "imagePullSecret[0].secretNameParameter",
        [{"secretNameParameter": {"runtimeValue": {"constant": ""}}}],
    ),
    (
        "runtime-value",
        "imagePullSecret[0].secretNameParameter.runtimeValue",
        [{"secretNameParameter": {"runtimeValue": {"runtimeParameter": "x"}}}],
    ),
    (
        "unknown-input-parameter",
        "imagePullSecret[0].secretNameParameter.componentInputParameter",
        [{"secretNameParameter": {"componentInputParameter": "x"}}],
    ),
    ("secret-name", "secretAsVolume[0]", [{"mountPath": "/a"}]),
    ("config-map-name", "configMapAsVolume[0]", [{"mountPath": "/a"}]),
    ("key-to-env", "secretAsEnv[0]", [{"secretNameParameter": CONSTANT}]),
    (
        "key-to-env",
        "configMapAsEnv[0].keyToEnv[0]",
        [{"configMapName": "a", "keyToEnv": [{"configMapKey": "a"}]}],
    ),
    ("pvc-mount", "pvcMount[0]", [{"mountPath": "/data"}]),
    (
        "pvc-mount",
        "pvcMount[0].pvcNameParameter",
        [{"pvcNameParameter": {"runtimeValue": {"constant": 3}}, "mountPath": "/d"}],
    ),
    ("mount-path", "pvcMount[0].mountPath", [{"constant": "claim"}]),
    ("mount-path", "secretAsVolume[0].mountPath", [{"secretName": "a", "mountPath": "etc/a"}]),
    ("field-path", "fieldPathAsEnv[0]", [{"name": "POD"}]),
    ("volume", "emptyDirMounts[0].sizeLimit", [{**VOLUME, "sizeLimit": "2GB"}]),
    ("volume", "emptyDirMounts[0].medium", [{**VOLUME, "medium": "memory"}]),
    ("volume", "emptyDirMounts[0].volumeName", [{"mountPath": "/a"}]),
    ("volume", "genericEphemeralVolume[0].size", [{**VOLUME, "accessModes": ["ReadWriteOnce"]}]),
    (
        "volume",
        "genericEphemeralVolume[0].accessModes",
        [{**VOLUME, "size": "1Gi", "accessModes": ["RWO"]}],
    ),
    # names that Kubernetes refuses
    *(
        ("kubernetes-name", location, value)
        for location, value in (
            ("pvcMount[0].constant", [{**CLAIM, "constant": "my.claim"}]),
            ("pvcMount[0].constant", [{**CLAIM, "constant": "kfp-launcher"}]),
            ("pvcMount[0].subPath", [{**CLAIM, "subPath": "../x"}]),
            ("pvcMount[1].mountPath", [CLAIM, {**CLAIM, "constant": "other"}]),
            ("emptyDirMounts[0].volumeName", [{**SHM, "volumeName": "a_b"}]),
            ("emptyDirMounts[0].sizeLimit", [{**SHM, "sizeLimit": "-1Gi"}]),
            ("nodeSelector.labels", {"labels": {"a b": "c"}}),
            ("nodeSelector.labels", {"labels": {"a": "c d"}}),
            ("activeDeadlineSeconds", "99999999999"),
            ("secretAsEnv[0].secretName", _secret(name="My_Secret")),
            ("secretAsEnv[0].keyToEnv[0].secretKey", _secret(key="k/ k")),
            ("secretAsEnv[0].keyToEnv[0].envVar", _secret(variable="a=b")),
        )
    ),
    *(
        ("toleration", "tolerations[0]", [toleration])
        for toleration in (
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "value": "b"},
            {"operator": "Equal", "value": "b"},
            {"key": "a", "effect": "Never"},
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5},
        )
    ),
    *(
        ("node-affinity", "nodeAffinity[0]", [term])
        for term in (
            {"matchExpressions": [{"key": "a", "operator": "Equals", "values": ["b"]}]},
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            {"matchExpressions": [{"operator": "Exists"}]},
            {"matchFields": [{"key": "a", "operator": "Exists"}], "weight": 0},
        )
    ),
    *(
        ("init-container", "initContainers[0]", [container])
        for container in (
            {"image": "a"},
            {"name": "kfp-launcher", "image": "a"},
            {"name": "a"},
            {"name": "a", "image": "a", "restartPolicy": "Never"},
            {"name": "a", "image": "a", "env": [{"value": "b"}]},
            {"name": "a", "image": "a", "volumeMounts": [{"volumeName": "v", "mountPath": "b"}]},
            {"name": "a", "image": "a", "resources": {"limits": {"cpu": "one"}}},
        )
    ),
]


@pytest.mark.parametrize(
    ("rule", "location", "value"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_exactly_that_finding(sample, rule, location, value):
    field = re.split(r"[.[]", location)[0]
    sample.pod[field] = value
    assert [(found.rule, found.location) for found in check(sample.text)] == [
        (rule, f"{POD}.{location}")
    ]


def test_volumes_are_named_apart(sample):
    sample.pod["pvcMount"] = [CLAIM, {**CLAIM, "mountPath": "/other"}]
    sample.pod["emptyDirMounts"] = [{**SHM, "sizeLimit": "1Gi"}]
    assert check(sample.text) == []
    sample.pod["pvcMount"] = [{**CLAIM, "constant": "shm"}]
    [found] = check(sample.text)
    assert (found.rule, found.location) == ("kubernetes-name", f"{POD}.pvcMount[0].constant")


def test_an_executor_that_is_not_there(sample):
    executors = sample.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    executors["exec-trian"] = executors.pop("exec-train")
    [found] = check(sample.text)
    assert found.rule == "platform-executor" and found.location.endswith("executors.exec-trian")
    assert "exec-train" in found.remedy


def test_an_importers_pod_takes_no_settings(sample):
    executors = sample.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    executors["exec-fetch"] = {"imagePullPolicy": "Always"}
    [found] = check(sample.text)
    assert found.rule == "platform-ignored" and found.location.endswith("executors.exec-fetch")


def test_the_document_itself_is_strict(sample):
    sample.platform["platforms"]["kubernetes"]["colour"] = "red"
    [found] = check(sample.text)
    assert (found.rule, found.location) == ("platform-field", "platforms.kubernetes.colour")
    assert "silently ignores" in found.problem


def test_a_name_from_a_task_that_is_not_waited_for(sample):
    sample.tasks["names"] = {
        "taskInfo": {"name": "names"},
        "componentRef": {"name": "generate"},
        "inputs": {"parameters": {"seed": {"runtimeValue": {"constant": 8}}}},
    }
    output = {"producerTask": "names", "outputParameterKey": "rows"}
    sample.pod["imagePullSecret"] = [{"secretNameParameter": {"taskOutputParameter": output}}]
    [found] = check(sample.text)
    assert found.rule == "unordered-producer"
    sample.tasks["train"]["dependentTasks"].append("names")
    assert check(sample.text) == []
