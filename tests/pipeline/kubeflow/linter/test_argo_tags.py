"""Argo's tags in texts, as the real backend took them."""

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
        given = sample.tasks["train"]["inputs"]["parameters"]
        given["text"] = {"runtimeValue": {"constant": text}}
        defined = sample.components["train"]["inputDefinitions"]["parameters"]
        defined["text"] = {"parameterType": "STRING"}
        location = "root.dag.tasks.train.inputs.parameters.text.runtimeValue.constant"
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
