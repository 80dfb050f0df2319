"""One change to an accepted file for each rule about what executors hold: that finding alone."""

import pytest

from stagecraft.pipeline.kubeflow.linter import check

EXECUTORS = "deploymentSpec.executors"
BOX = f"{EXECUTORS}.exec-train.container"
IMPORTER = f"{EXECUTORS}.exec-fetch.importer"


def _importer(s, **changes):
    s.executors["exec-fetch"]["importer"].update(changes)


def _resources(s, **changes):
    s.container["resources"].update(changes)


def _resolver(s):
    s.executors["exec-fetch"] = {"resolver": {"outputArtifactQueries": {}}}


def _same_container(s):
    s.executors["exec-report"]["container"] = s.executors["exec-generate"]["container"] = {
        "image": "python:3.12",
        "command": ["python", "-m", "same"],
    }


CASES = [
    # kinds
    ("executor-kind", f"{EXECUTORS}.exec-fetch.resolver", _resolver),
    (
        "executor-kind",
        f"{EXECUTORS}.exec-fetch.customJob",
        lambda s: s.executors.update({"exec-fetch": {"customJob": {"customJob": {}}}}),
    ),
    (
        "executor-field-ignored",
        f"{BOX}.resources.cpus",
        lambda s: _resources(s, cpus=3),
    ),
    ("same-container", f"{EXECUTORS}.exec-report.container", _same_container),
    # containers
    ("container-image", f"{BOX}.image", lambda s: s.container.pop("image")),
    (
        "container-command",
        f"{EXECUTORS}.exec-report.container.command",
        lambda s: s.executors["exec-report"]["container"].pop("command"),
    ),
    (
        "lifecycle-ignored",
        f"{BOX}.lifecycle",
        lambda s: s.container.update(lifecycle={"preCacheCheck": {"command": ["x"]}}),
    ),
    (
        "placeholder",
        f"{BOX}.image",
        lambda s: s.container.update(image="{{$.inputs.parameters['image']}}"),
    ),
    (
        "placeholder",
        f"{BOX}.image",
        lambda s: s.container.update(image="python:{{$.inputs.parameters['mode']}}"),
    ),
    (
        "placeholder",
        f"{BOX}.args[0]",
        lambda s: s.container.update(args=["--x={{$.inputs.parameters['unused']}}"]),
    ),
    (
        "placeholder",
        f"{BOX}.args[0]",
        lambda s: s.container.update(args=["{{$.outputs.artifacts['gone'].path}}"]),
    ),
    # resources
    (
        "resources",
        f"{BOX}.resources.resourceMemoryLimit",
        lambda s: _resources(s, resourceMemoryLimit="16GB"),
    ),
    ("resources", f"{BOX}.resources.cpuLimit", lambda s: _resources(s, cpuLimit=-1)),
    (
        "resources",
        f"{BOX}.resources.memoryRequest",
        lambda s: _resources(s, resourceMemoryRequest="17G"),
    ),
    (
        "accelerator",
        f"{BOX}.resources.accelerator",
        lambda s: _resources(s, accelerator={"type": "nvidia.com/gpu"}),
    ),
    (
        "accelerator",
        f"{BOX}.resources.accelerator",
        lambda s: _resources(s, accelerator={"type": "NVIDIA_TESLA_T4", "count": "1"}),
    ),
    (
        "resources",
        f"{BOX}.resources.accelerator",
        lambda s: _resources(s, accelerator={"type": "nvidia.com/gpu", "resourceCount": "0.5"}),
    ),
    # importers
    ("artifact-type", f"{IMPORTER}.typeSchema", lambda s: _importer(s, typeSchema={})),
    (
        "importer-output",
        "components.fetch.outputDefinitions.artifacts",
        lambda s: s.components["fetch"]["outputDefinitions"]["artifacts"].update(
            more={"artifactType": {"schemaTitle": "a"}}
        ),
    ),
    *(
        (
            "importer-uri",
            f"{IMPORTER}.artifactUri",
            lambda s, uri=uri: _importer(s, artifactUri=uri),
        )
        for uri in (
            {},
            {"constant": "/data/schema"},
            {"constant": ""},
            {"constant": "oci://registry/schema"},
            {"constantValue": {"stringValue": "gs://bucket/schema"}},
            {"runtimeParameter": "uri"},
        )
    ),
    # TFX on top
    (
        "tfx-input-type",
        f"{BOX}.command",
        lambda s: s.container.update(
            command=[
                "python",
                "-m",
                "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor",
            ]
        ),
    ),
    (
        "tfx-uri",
        f"{EXECUTORS}.exec-generate.container.command",
        lambda s: s.executors["exec-generate"]["container"].update(
            command=[
                "python",
                "-m",
                "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor",
            ]
        ),
    ),
]


@pytest.mark.parametrize(
    ("rule", "location", "change"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_exactly_that_finding(sample, rule, location, change):
    change(sample)
    assert [(found.rule, found.location) for found in check(sample.text)] == [(rule, location)]
