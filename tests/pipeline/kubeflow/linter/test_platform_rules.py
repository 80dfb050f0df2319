"""One change to an accepted file for each rule about the platform document."""

import pytest

from stagecraft.pipeline.kubeflow.linter import check

POD = "platforms.kubernetes.deploymentSpec.executors.exec-train"
CONSTANT = {"runtimeValue": {"constant": "name"}}


def _from_report(s):
    """A name made by a task that ``train`` does not wait for."""
    s.tasks["names"] = {
        "taskInfo": {"name": "names"},
        "componentRef": {"name": "generate"},
        "inputs": {"parameters": {"seed": {"runtimeValue": {"constant": 8}}}},
    }
    output = {"producerTask": "names", "outputParameterKey": "rows"}
    s.pod["imagePullSecret"] = [{"secretNameParameter": {"taskOutputParameter": output}}]


VOLUME = {"volumeName": "a", "mountPath": "/a"}

CASES = [
    ("platform-field", "nodeSelectors", {"nodeSelectors": {}}),
    ("platform-field", "nodeSelector.labels.gpu", {"nodeSelector": {"labels": {"gpu": 1}}}),
    ("platform-field", "tolerations", {"tolerations": {}}),
    ("platform-field", "securityContext.privileged", {"securityContext": {"privileged": 1}}),
    ("platform-ignored", "enabledSharedMemory", {"enabledSharedMemory": {"size": "1Gi"}}),
    ("platform-ignored", "podAffinity", {"podAffinity": [{"topologyKey": "zone"}]}),
    ("image-pull-policy", "imagePullPolicy", {"imagePullPolicy": "Sometimes"}),
    ("active-deadline", "activeDeadlineSeconds", {"activeDeadlineSeconds": 0}),
    (
        "security-context",
        "securityContext",
        {"securityContext": {"runAsUser": "0", "runAsNonRoot": True}},
    ),
    (
        "secret-name",
        "secretAsEnv[0]",
        {"secretAsEnv": [{"keyToEnv": [{"secretKey": "a", "envVar": "A"}]}]},
    ),
    (
        "secret-name",
        "imagePullSecret[0].secretNameParameter",
        {"imagePullSecret": [{"secretNameParameter": {"runtimeValue": {"constant": ""}}}]},
    ),
    (
        "runtime-value",
        "imagePullSecret[0].secretNameParameter.runtimeValue",
        {"imagePullSecret": [{"secretNameParameter": {"runtimeValue": {"runtimeParameter": "x"}}}]},
    ),
    (
        "unknown-input-parameter",
        "imagePullSecret[0].secretNameParameter.componentInputParameter",
        {"imagePullSecret": [{"secretNameParameter": {"componentInputParameter": "x"}}]},
    ),
    ("secret-name", "secretAsVolume[0]", {"secretAsVolume": [{"mountPath": "/a"}]}),
    ("config-map-name", "configMapAsVolume[0]", {"configMapAsVolume": [{"mountPath": "/a"}]}),
    ("key-to-env", "secretAsEnv[0]", {"secretAsEnv": [{"secretNameParameter": CONSTANT}]}),
    (
        "key-to-env",
        "configMapAsEnv[0].keyToEnv[0]",
        {"configMapAsEnv": [{"configMapName": "a", "keyToEnv": [{"configMapKey": "a"}]}]},
    ),
    ("pvc-mount", "pvcMount[0]", {"pvcMount": [{"mountPath": "/data"}]}),
    (
        "pvc-mount",
        "pvcMount[0].pvcNameParameter",
        {"pvcMount": [{"pvcNameParameter": {"runtimeValue": {"constant": 3}}, "mountPath": "/d"}]},
    ),
    ("mount-path", "pvcMount[0].mountPath", {"pvcMount": [{"constant": "claim"}]}),
    (
        "mount-path",
        "secretAsVolume[0].mountPath",
        {"secretAsVolume": [{"secretName": "a", "mountPath": "etc/a"}]},
    ),
    ("field-path", "fieldPathAsEnv[0]", {"fieldPathAsEnv": [{"name": "POD"}]}),
    ("volume", "emptyDirMounts[0].sizeLimit", {"emptyDirMounts": [{**VOLUME, "sizeLimit": "2GB"}]}),
    ("volume", "emptyDirMounts[0].medium", {"emptyDirMounts": [{**VOLUME, "medium": "memory"}]}),
    ("volume", "emptyDirMounts[0].volumeName", {"emptyDirMounts": [{"mountPath": "/a"}]}),
    (
        "volume",
        "genericEphemeralVolume[0].size",
        {"genericEphemeralVolume": [{**VOLUME, "accessModes": ["ReadWriteOnce"]}]},
    ),
    (
        "volume",
        "genericEphemeralVolume[0].accessModes",
        {"genericEphemeralVolume": [{**VOLUME, "size": "1Gi", "accessModes": ["RWO"]}]},
    ),
    *(
        ("toleration", "tolerations[0]", {"tolerations": [toleration]})
        for toleration in (
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "value": "b"},
            {"operator": "Equal", "value": "b"},
            {"key": "a", "effect": "Never"},
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5},
        )
    ),
    *(
        ("node-affinity", "nodeAffinity[0]", {"nodeAffinity": [term]})
        for term in (
            {"matchExpressions": [{"key": "a", "operator": "Equals", "values": ["b"]}]},
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            {"matchExpressions": [{"operator": "Exists"}]},
            {"matchFields": [{"key": "a", "operator": "Exists"}], "weight": 0},
        )
    ),
    *(
        ("init-container", "initContainers[0]", {"initContainers": [container]})
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
    ("rule", "location", "change"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_exactly_that_finding(sample, rule, location, change):
    sample.pod.update(change)
    assert [(found.rule, found.location) for found in check(sample.text)] == [
        (rule, f"{POD}.{location}")
    ]


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


def test_a_name_from_a_task_that_is_not_waited_for(sample, messages):
    _from_report(sample)
    [found] = check(sample.text)
    assert found.rule == "unordered-producer"
    messages.check(found.remedy)
    sample.tasks["train"]["dependentTasks"].append("names")
    assert check(sample.text) == []
