"""One change to an accepted file for each rule about what executors hold: that finding alone."""

import pytest

from stagecraft.pipeline.kubeflow.linter import check

EXECUTORS = "deploymentSpec.executors"
BOX = f"{EXECUTORS}.exec-train.container"
IMPORTER = f"{EXECUTORS}.exec-fetch.importer"

FETCH = f"{EXECUTORS}.exec-fetch"
RESOURCES = f"{BOX}.resources"
ACCELERATOR = f"{RESOURCES}.accelerator"
OUTPUTS = "components.fetch.outputDefinitions.artifacts"
SAME = {"image": "python:3.12", "command": ["python", "-m", "same"]}
TFX = ["python", "-m", "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"]


def _at(rule, location, value):
    """A finding at the place that is changed."""
    return rule, location, {location: value}


CASES = [
    # kinds
    ("executor-kind", f"{FETCH}.resolver", {FETCH: {"resolver": {"outputArtifactQueries": {}}}}),
    ("executor-kind", f"{FETCH}.customJob", {FETCH: {"customJob": {"customJob": {}}}}),
    _at("executor-field-ignored", f"{RESOURCES}.cpus", 3),
    (
        "same-container",
        f"{EXECUTORS}.exec-report.container",
        {f"{EXECUTORS}.exec-{name}.container": SAME for name in ("report", "generate")},
    ),
    # containers
    _at("container-image", f"{BOX}.image", ...),
    _at("container-command", f"{EXECUTORS}.exec-report.container.command", ...),
    _at("lifecycle-ignored", f"{BOX}.lifecycle", {"preCacheCheck": {"command": ["x"]}}),
    _at("kubernetes-name", f"{BOX}.image", " x "),
    *(
        ("kubernetes-name", f"{BOX}.env[0].name", {f"{BOX}.env": [{"name": name, "value": "x"}]})
        for name in ("a=b", "")
    ),
    _at("placeholder", f"{BOX}.image", "{{$.inputs.parameters['image']}}"),
    _at("placeholder", f"{BOX}.image", "python:{{$.inputs.parameters['mode']}}"),
    *(
        ("placeholder", f"{BOX}.args[0]", {f"{BOX}.args": [text]})
        for text in (
            "--x={{$.inputs.parameters['unused']}}",
            "{{$.outputs.artifacts['gone'].path}}",
        )
    ),
    # resources
    _at("resources", f"{RESOURCES}.resourceMemoryLimit", "16GB"),
    _at("resources", f"{RESOURCES}.cpuLimit", -1),
    ("resources", f"{RESOURCES}.memoryRequest", {f"{RESOURCES}.resourceMemoryRequest": "17G"}),
    _at("accelerator", ACCELERATOR, {"type": "nvidia.com/gpu"}),
    _at("accelerator", ACCELERATOR, {"type": "NVIDIA_TESLA_T4", "count": "1"}),
    _at("resources", ACCELERATOR, {"type": "nvidia.com/gpu", "resourceCount": "0.5"}),
    # importers
    _at("artifact-type", f"{IMPORTER}.typeSchema", {}),
    ("importer-output", OUTPUTS, {f"{OUTPUTS}.more": {"artifactType": {"schemaTitle": "a"}}}),
    *(
        _at("importer-uri", f"{IMPORTER}.artifactUri", uri)
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
    _at("tfx-input-type", f"{BOX}.command", TFX),
    _at("tfx-uri", f"{EXECUTORS}.exec-generate.container.command", TFX),
]


@pytest.mark.parametrize(
    ("rule", "location", "change"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_exactly_that_finding(sample, rule, location, change):
    sample.change(change)
    assert [(found.rule, found.location) for found in check(sample.text)] == [(rule, location)]
