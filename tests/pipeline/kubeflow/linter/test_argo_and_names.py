"""Argo's tags in texts, and names that Kubernetes refuses, as the real backend took them."""

from __future__ import annotations

import pytest

from stagecraft.pipeline.kubeflow.linter import check

POD = "platforms.kubernetes.deploymentSpec.executors.exec-train"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{{inputs.parameters.x}}", "argo-tag"),
        ("{{pod.name}}", "argo-tag"),
        ("a {{ steps.a.b }} b", "argo-tag"),
        ("{{tasks.a.outputs.x}}", "argo-tag"),
        ("{{workflow.nope}}", "argo-tag"),
        ("{{workflow.name}}", "argo-variable"),
        ("{{a{{workflow.name}}}}", "argo-variable"),
        ("{{workflow.parameters}}", "argo-variable"),
        ("{{=1+1}}", "argo-expression"),
        ("{{=foo(}}", "argo-expression"),
        ("{{item}}", None),
        ("{{ x | upper }}", None),
        ("{{outputs.x}}", None),
        ("{{ unclosed", None),
        ("}} {{", None),
    ],
)
@pytest.mark.parametrize("place", ["constant", "argument", "variable", "default", "platform"])
def test_argo_tags(sample, text, rule, place) -> None:
    if place == "constant":
        name, task = next((n, t) for n, t in sample.tasks.items() if n == "train")
        task["inputs"]["parameters"]["text"] = {"runtimeValue": {"constant": text}}
        component = sample.components[task["componentRef"]["name"]]
        component["inputDefinitions"]["parameters"]["text"] = {"parameterType": "STRING"}
        location = f"root.dag.tasks.{name}.inputs.parameters.text.runtimeValue.constant"
    elif place == "argument":
        sample.container["args"].append(text)
        index = len(sample.container["args"]) - 1
        location = f"deploymentSpec.executors.exec-train.container.args[{index}]"
    elif place == "variable":
        sample.container["env"] = [{"name": "A", "value": text}]
        location = "deploymentSpec.executors.exec-train.container.env[0].value"
    elif place == "default":
        inputs = sample.root.setdefault("inputDefinitions", {}).setdefault("parameters", {})
        inputs["text"] = {"parameterType": "STRING", "defaultValue": text}
        location = "root.inputDefinitions.parameters.text.defaultValue"
    else:
        sample.pod["podMetadata"] = {"annotations": {"a": text}}
        location = f"{POD}.podMetadata.annotations.a"
    found = [(each.rule, each.location) for each in check(sample.text)]
    assert found == ([(rule, location)] if rule else [])


def _pair(key: str, name: str) -> dict[str, str]:
    return {"secretKey": key, "envVar": name}


CLAIM = {"constant": "data", "mountPath": "/data"}
SHM = {"volumeName": "shm", "mountPath": "/dev/shm"}


@pytest.mark.parametrize(
    ("settings", "location"),
    [
        ({"pvcMount": [{**CLAIM, "constant": "my.claim"}]}, "pvcMount[0].constant"),
        ({"pvcMount": [{**CLAIM, "constant": "kfp-launcher"}]}, "pvcMount[0].constant"),
        ({"pvcMount": [{**CLAIM, "subPath": "../x"}]}, "pvcMount[0].subPath"),
        (
            {"pvcMount": [{**CLAIM, "constant": "shm"}], "emptyDirMounts": [SHM]},
            "pvcMount[0].constant",
        ),
        ({"pvcMount": [CLAIM, {**CLAIM, "constant": "other"}]}, "pvcMount[1].mountPath"),
        ({"pvcMount": [CLAIM, {**CLAIM, "mountPath": "/other"}]}, None),
        ({"emptyDirMounts": [{**SHM, "volumeName": "a_b"}]}, "emptyDirMounts[0].volumeName"),
        ({"emptyDirMounts": [{**SHM, "sizeLimit": "-1Gi"}]}, "emptyDirMounts[0].sizeLimit"),
        ({"emptyDirMounts": [{**SHM, "sizeLimit": "1Gi"}]}, None),
        ({"nodeSelector": {"labels": {"a b": "c"}}}, "nodeSelector.labels"),
        ({"nodeSelector": {"labels": {"a": "c d"}}}, "nodeSelector.labels"),
        ({"activeDeadlineSeconds": "99999999999"}, "activeDeadlineSeconds"),
        (
            {"secretAsEnv": [{"secretName": "My_Secret", "keyToEnv": [_pair("k", "V")]}]},
            "secretAsEnv[0].secretName",
        ),
        (
            {"secretAsEnv": [{"secretName": "s", "keyToEnv": [_pair("k/ k", "V")]}]},
            "secretAsEnv[0].keyToEnv[0].secretKey",
        ),
        (
            {"secretAsEnv": [{"secretName": "s", "keyToEnv": [_pair("k", "a=b")]}]},
            "secretAsEnv[0].keyToEnv[0].envVar",
        ),
    ],
)
def test_names_in_the_platform_document(sample, settings, location) -> None:
    sample.pod.update(settings)
    found = [(each.rule, each.location) for each in check(sample.text)]
    assert found == ([("kubernetes-name", f"{POD}.{location}")] if location else [])


@pytest.mark.parametrize(
    ("field", "value"), [("image", " x "), ("env", "a=b"), ("env", "")], ids=str
)
def test_names_in_a_container(sample, field, value) -> None:
    place = "deploymentSpec.executors.exec-train.container"
    if field == "image":
        sample.container["image"] = value
        location = f"{place}.image"
    else:
        sample.container["env"] = [{"name": value, "value": "x"}]
        location = f"{place}.env[0].name"
    found = [(each.rule, each.location) for each in check(sample.text)]
    assert found == [("kubernetes-name", location)]
